package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mongostream/streamer/client"
)

const (
	maxWaiting   = 1000             // changes that wait for a browser
	writeTimeout = 10 * time.Second // for one
)

var errSlow = errors.New("too slow: connect again")

// A gateway pushes changes to browsers.
type gateway struct {
	changes *client.Client

	mu struct {
		sync.Mutex
		browsers map[string]*browser // by the ids of their subscriptions
	}
}

// A browser is one connection.
type browser struct {
	waiting chan []byte
	leave   context.CancelCauseFunc
}

// push lets a message wait for the browser, which leaves if there are too many. It never blocks.
func (b *browser) push(message []byte) {
	select {
	case b.waiting <- message:
	default:
		b.leave(errSlow)
	}
}

func newGateway(cfg client.Config) (*gateway, error) {
	g := &gateway{}
	g.mu.browsers = make(map[string]*browser)
	cfg.OnNotice = g.notice
	var err error
	g.changes, err = client.New(cfg)
	return g, err
}

// notice tells browsers what concerns them.
func (g *gateway) notice(_ context.Context, n client.Notice) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := n.(type) {
	case client.Resync:
		message, err := json.Marshal(map[string]any{"notice": "resync", "namespaces": n.Namespaces, "advice": n.Advice})
		if err != nil {
			return err
		}
		for _, b := range g.mu.browsers {
			b.push(message)
		}
	case client.Subscribed:
		if b := g.mu.browsers[n.Subscription]; b != nil {
			b.push([]byte(`{"notice":"subscribed"}`))
		}
	case client.Rejected:
		if b := g.mu.browsers[n.Subscription]; b != nil {
			b.leave(fmt.Errorf("%s: %s", n.Code, n.Message))
		}
	}
	return nil
}

// connect serves one browser until it leaves. Browsers of other origins are refused.
func (g *gateway) connect(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer func() { _ = ws.CloseNow() }()
	ctx, leave := context.WithCancelCause(ws.CloseRead(r.Context())) // browsers say nothing
	defer leave(nil)
	b := &browser{waiting: make(chan []byte, maxWaiting), leave: leave}
	id := rand.Text()
	query := r.URL.Query()
	g.mu.Lock()
	g.mu.browsers[id] = b
	g.mu.Unlock()
	defer func() {
		g.changes.Unsubscribe(id)
		g.mu.Lock()
		delete(g.mu.browsers, id)
		g.mu.Unlock()
	}()
	wanted := client.Subscription{ID: id, DB: query.Get("db"), Coll: query.Get("coll"), Ops: query["op"], Filter: query.Get("filter"), Format: client.JSON}
	err = g.changes.Subscribe(wanted, func(_ context.Context, c client.Change) error {
		b.push(c.Data)
		return nil
	})
	for err == nil {
		err = b.write(ctx, ws)
	}
	text := err.Error() // a close frame carries 123 bytes
	_ = ws.Close(websocket.StatusTryAgainLater, text[:min(len(text), 120)])
}

// write writes the next message.
func (b *browser) write(ctx context.Context, ws *websocket.Conn) error {
	select {
	case message := <-b.waiting:
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		return ws.Write(ctx, websocket.MessageText, message)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
