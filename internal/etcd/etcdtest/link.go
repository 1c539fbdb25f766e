package etcdtest

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const txnMethod = "/etcdserverpb.KV/Txn"

// A Link is the connection of a client under test: a proxy that can be cut, and an interceptor
// after clientv3's own that holds requests or loses replies.
type Link struct {
	*testing.T

	// Proxy is the proxy that carries the connection.
	Proxy *toxiproxy.Proxy
	// Transactions counts the transactions that were sent.
	Transactions atomic.Int64

	mu struct {
		sync.Mutex

		meet func(ctx context.Context, send func(context.Context) error) error // the next transaction
	}
}

// NewLink makes a link to an upstream endpoint; the client must connect to the returned endpoint.
func NewLink(t *testing.T, upstream string) (l *Link, endpoint string) {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))
	l = &Link{T: t, Proxy: toxiproxy.NewProxy(server, "etcd", "127.0.0.1:0", upstream)}
	if err := l.Proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Proxy.Stop)
	return l, l.Proxy.Listen
}

// Restart starts the proxy again after its Stop, at the same endpoint. It waits while another
// connection of this machine happens to have the port.
func (l *Link) Restart() {
	l.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for err := l.Proxy.Start(); err != nil; err = l.Proxy.Start() {
		select {
		case <-again.C:
		case <-patience.C:
			l.Fatal(err)
		}
	}
}

// Options returns the dial options that put the link between clientv3 and its connection.
func (l *Link) Options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.intercept)}
}

func (l *Link) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	send := func(ctx context.Context) error { return invoke(ctx, method, req, reply, conn, opts...) }
	if method != txnMethod {
		return send(ctx)
	}
	l.Transactions.Add(1)
	l.mu.Lock()
	meet := l.mu.meet
	l.mu.meet = nil
	l.mu.Unlock()
	if meet == nil {
		return send(ctx)
	}
	return meet(ctx, send)
}

// Next makes meet replace the sending of the next transaction.
func (l *Link) Next(meet func(ctx context.Context, send func(context.Context) error) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.meet = meet
}

// Hold implements checkpointtest.Link.
func (l *Link) Hold() (held <-chan struct{}, deliver func()) {
	kept := make(chan struct{})
	var late func() error
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		late = func() error { return send(context.WithoutCancel(ctx)) }
		close(kept)
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	return kept, func() {
		<-kept
		if err := late(); err != nil {
			l.Errorf("the late request was not taken: %v", err)
		}
	}
}

// Mute implements checkpointtest.Link.
func (l *Link) Mute() <-chan struct{} {
	muted := make(chan struct{})
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(context.WithoutCancel(ctx)); err != nil {
			l.Errorf("the request was not taken: %v", err)
		}
		close(muted)
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	return muted
}

// Cut implements checkpointtest.Link: connections stay open, but carry no data.
func (l *Link) Cut() (heal func()) {
	return l.Spoil(`{"name": "cut", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`)
}

// Spoil adds a toxic to the proxy.
func (l *Link) Spoil(toxic string) (heal func()) {
	l.Helper()
	wrapper, err := l.Proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	if err != nil {
		l.Fatal(err)
	}
	return func() {
		if err := l.Proxy.Toxics.RemoveToxic(context.Background(), wrapper.Name); err != nil {
			l.Errorf("heal: %v", err)
		}
	}
}
