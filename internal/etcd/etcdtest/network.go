package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
)

// A network carries the traffic between members of a cluster. Each member uses its own HTTP proxy,
// so that the network knows the sender of each connection.
type network struct {
	t testing.TB

	mu       sync.Mutex
	peers    map[string]string // addresses, by host
	proxies  map[string]string // URLs, by host
	isolated map[string]bool
	changed  chan struct{} // closed when isolated has changed
}

func newNetwork(t testing.TB) *network {
	return &network{
		t: t, peers: make(map[string]string), proxies: make(map[string]string), isolated: make(map[string]bool), changed: make(chan struct{}),
	}
}

// add adds a member, and makes its proxy.
func (n *network) add(host, peer string) {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		n.t.Fatal(err)
	}
	ways := &http.Transport{
		DialContext:        func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, host, address) },
		DisableCompression: true,
	}
	server := &http.Server{ //nolint:gosec // members are trusted
		Handler: &httputil.ReverseProxy{
			Rewrite: func(*httputil.ProxyRequest) {}, Transport: ways, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	n.t.Cleanup(func() {
		_ = server.Close()
		ways.CloseIdleConnections()
		<-served
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peers[host], n.proxies[host] = peer, "http://"+l.Addr().String()
}

// proxy is the URL of a member's proxy.
func (n *network) proxy(host string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxies[host]
}

// dial connects a member with another.
func (n *network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	peer, known := n.peers[to]
	n.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("there is no member %q", to)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", peer)
	if err != nil {
		return nil, err
	}
	return &way{Conn: conn, net: n, from: from, to: to, closed: make(chan struct{})}, nil
}

func (n *network) isolate(host string) { n.set(host, true) }
func (n *network) heal(host string)    { n.set(host, false) }

func (n *network) set(host string, isolated bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated[host] = isolated
	close(n.changed)
	n.changed = make(chan struct{})
}

// A way is a connection of one member to another.
type way struct {
	net.Conn

	net      *network
	from, to string
	once     sync.Once
	closed   chan struct{}
}

// wait returns when neither side is isolated, or the connection is closed.
func (w *way) wait() {
	for {
		w.net.mu.Lock()
		cut := w.net.isolated[w.from] || w.net.isolated[w.to]
		changed := w.net.changed
		w.net.mu.Unlock()
		if !cut {
			return
		}
		select {
		case <-changed:
		case <-w.closed:
			return
		}
	}
}

func (w *way) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.wait()
	return n, err
}

func (w *way) Write(b []byte) (int, error) {
	w.wait()
	return w.Conn.Write(b)
}

func (w *way) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
