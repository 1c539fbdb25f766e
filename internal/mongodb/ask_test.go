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

// What shows why a server does not answer is kept, whatever the attempts after it meet.
func TestTellingErrorIsKept(t *testing.T) {
	t.Parallel()
	alert := tls.AlertError(42)
	for _, c := range []struct {
		want error
		meet []error
	}{
		{nil, []error{context.Canceled}},
		{syscall.ECONNRESET, []error{context.Canceled, syscall.ECONNRESET, context.Canceled}},
		{io.EOF, []error{syscall.ECONNRESET, io.EOF, context.Canceled}},
		{alert, []error{syscall.ECONNRESET, context.Canceled, alert, syscall.ECONNRESET, context.Canceled}},
	} {
		var last atomic.Pointer[error]
		for _, err := range c.meet {
			telling(&last).ServerHeartbeatFailed(&event.ServerHeartbeatFailedEvent{Failure: fmt.Errorf("connection: %w", err)})
		}
		kept := last.Load()
		if (kept != nil) != (c.want != nil) || kept != nil && !errors.Is(*kept, c.want) {
			t.Errorf("after %v: kept %v", c.meet, kept)
		}
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
