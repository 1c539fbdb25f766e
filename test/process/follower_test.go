package process

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/sse"
)

// A follower is a subscriber of /v1/events. It connects again behind the last id whenever it is cut
// off.
type follower struct {
	url  string
	take func(data string) error // takes each event, in order

	mu struct {
		sync.Mutex
		lastID      string
		connections int
		err         error // the first that take returned, or the server, which ended it all
	}
}

func newFollower(address string, take func(string) error) *follower {
	return &follower{url: address + "/v1/events", take: take}
}

// run follows until the context ends or something is wrong.
func (f *follower) run(ctx context.Context) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil && f.failure() == nil {
		f.connect(ctx, &http.Client{Transport: transport})
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// connect makes one connection and takes its events until it breaks.
func (f *follower) connect(ctx context.Context, client *http.Client) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		f.fail(err)
		return
	}
	if id := f.id(); id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	resp, err := client.Do(req)
	if err != nil {
		return // nobody listens
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return // the node starts or stops
	default:
		f.fail(fmt.Errorf("status %s", resp.Status))
		return
	}
	f.mu.Lock()
	f.mu.connections++
	f.mu.Unlock()
	events := sse.NewReader(resp.Body)
	for {
		m, err := events.Next()
		f.note(events.LastID())
		switch {
		case err != nil:
			return
		case m.Event == "error":
			return // the node says that it stops
		}
		if err := f.take(string(m.WithID())); err != nil {
			f.fail(err)
			return
		}
	}
}

func (f *follower) id() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.lastID
}

// note keeps the last id; a connection that ends before it has told one changes nothing.
func (f *follower) note(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id != "" {
		f.mu.lastID = id
	}
}

func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err == nil {
		f.mu.err = err
	}
}

func (f *follower) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}

// connected returns how often it has been connected.
func (f *follower) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.connections
}
