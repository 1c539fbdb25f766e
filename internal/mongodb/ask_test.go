package mongodb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// An alert is kept, whatever the attempts after it meet.
func TestAlertIsKept(t *testing.T) {
	t.Parallel()
	var last atomic.Pointer[error]
	failed := refusals(&last).ServerHeartbeatFailed
	for _, err := range []error{syscall.ECONNRESET, context.Canceled} {
		failed(&event.ServerHeartbeatFailedEvent{Failure: err})
	}
	if last.Load() != nil {
		t.Errorf("%v is no alert", *last.Load())
	}
	alert := tls.AlertError(42)
	for _, err := range []error{alert, syscall.ECONNRESET, context.Canceled} {
		failed(&event.ServerHeartbeatFailedEvent{Failure: fmt.Errorf("connection: %w", err)})
	}
	if kept := last.Load(); kept == nil || !errors.Is(*kept, alert) {
		t.Errorf("kept %v", kept)
	}
}

// A server's reset of a connection can overtake the alert that says why it refuses a certificate.
func TestRefusalOfACertificateOutlastsResets(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	pair, err := tls.X509KeyPair(authority.Issue(t, "server", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Client(t, "").RootCAs}
	o := options.Client().SetTLSConfig(authority.Client(t, ""))
	// The driver cancels the context of a connection that fails, and now and then before it looks
	// at the error: then no attempt has shown the alert, and there is nothing to remember.
	for range 10 {
		var n int
		if n, err = askRefusing(t, server, o); n > 1 && certificate(err) != nil {
			return
		}
	}
	t.Errorf("the alert was forgotten: %v", err)
}

// askRefusing asks a server that refuses the first connection by an alert, and resets the others.
// It returns how many there were.
func askRefusing(t *testing.T, server *tls.Config, o *options.ClientOptions) (n int, err error) {
	t.Helper()
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
			if n == 0 {
				_ = tls.Server(conn, server).Handshake()
				_, _ = io.Copy(io.Discard, conn) // until the client has received the alert; a byte left unread would reset the connection
			} else if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
		served <- n
	}()
	c := &Client{cfg: Config{SelectionTimeout: time.Second}}
	_, err = c.ask(t.Context(), o, listener.Addr().String())
	_ = listener.Close()
	return <-served, err
}
