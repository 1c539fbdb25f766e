package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

// A proxyConfig configures a proxy to a server that limits the bytes a second of its replies, so
// that an in-memory server takes as long to reply as one that has to read and build its replies.
type proxyConfig struct {
	URI            string
	BytesPerSecond float64
}

// serveProxy is a proxy as a worker.
func serveProxy(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	return serveRequests(ctx, in, out, map[string]handler{
		"start": handle(func(_ context.Context, d proxyConfig) (serverAddress, error) {
			target, err := url.Parse(d.URI)
			if err != nil {
				return serverAddress{}, fmt.Errorf("open a proxy: %w", err)
			}
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return serverAddress{}, fmt.Errorf("open a proxy: %w", err)
			}
			h := &proxy{ctx: ctx, target: target.Host, rate: d.BytesPerSecond}
			context.AfterFunc(ctx, func() { _ = l.Close() })
			wg.Go(func() { h.accept(l) })
			// Otherwise the driver would bypass the proxy and connect to the address that the
			// server reports.
			return serverAddress{URI: fmt.Sprintf("mongodb://%s/?directConnection=true", l.Addr())}, nil
		}),
	})
}

// A proxy forwards connections at a limited rate.
type proxy struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the proxy and its connections
	target string
	rate   float64

	mu   sync.Mutex
	free time.Time // when the time for the forwarded bytes is over
}

func (h *proxy) accept(l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { h.join(client) })
	}
}

// join forwards bytes until either side closes.
func (h *proxy) join(client net.Conn) {
	defer client.Close() //nolint:errcheck // nobody minds
	server, err := (&net.Dialer{}).DialContext(h.ctx, "tcp", h.target)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // nobody minds
	defer context.AfterFunc(h.ctx, func() { _, _ = client.Close(), server.Close() })()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close() // which ends the other direction
	}()
	buffer := make([]byte, 64<<10)
	for {
		since := time.Now()
		n, err := server.Read(buffer)
		if err != nil || h.wait(n, since) != nil {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// mostLate bounds the delay that the proxy makes up for.
const mostLate = 20 * time.Millisecond

// wait waits for the time that n bytes take at the rate. The time since the proxy began to wait for
// these bytes is lost, because nothing was sent in it. The proxy makes up for late timers, up to
// mostLate, so that it keeps the rate.
func (h *proxy) wait(n int, since time.Time) error {
	h.mu.Lock()
	now := time.Now()
	if h.free.IsZero() {
		h.free = now
	}
	if late := now.Sub(h.free); late > 0 {
		h.free = h.free.Add(max(min(late, now.Sub(since)), late-mostLate))
	}
	h.free = h.free.Add(time.Duration(float64(n) / h.rate * float64(time.Second)))
	wait := h.free.Sub(now)
	h.mu.Unlock()
	return retry.Sleep(h.ctx, wait)
}
