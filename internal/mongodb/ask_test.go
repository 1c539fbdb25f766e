package mongodb

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// A server's reset of a connection can overtake the alert that says why it refuses a certificate.
func TestRefusalOfACertificateOutlastsResets(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	pair, err := tls.X509KeyPair(authority.Issue(t, "server", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Client(t, "").RootCAs}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			if n == 0 { // the others are reset
				_ = tls.Server(conn, server).Handshake()
				_, _ = conn.Read(make([]byte, 1<<10)) // what the client sends: unread, it would be answered by a reset
				_, _ = conn.Read(make([]byte, 1))     // until the client has received the alert
			} else if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
		served <- n
	}()
	o := options.Client().SetTLSConfig(authority.Client(t, ""))
	c := &Client{cfg: Config{SelectionTimeout: 1500 * time.Millisecond}}
	_, err = c.ask(t.Context(), o, listener.Addr().String())
	_ = listener.Close()
	if n := <-served; n < 2 || certificate(err) == nil {
		t.Errorf("after %d connections: %v", n, err)
	}
}
