package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/gateway/sse"
)

// browsers are clients that follow server-sent events. Each reads its own range of documents;
// together they read all.
type browsers struct {
	round   *round
	query   func(i int) url.Values // of the i-th
	http    *http.Client
	streams []*http.Response
	end     context.CancelFunc
	mu      sync.Mutex // guards the check
}

// connecting is how many of them connect at a time.
const connecting = 32

// Open implements Contender. A stream is open when its header has come: then whatever is written is
// delivered.
func (b *browsers) Open(ctx context.Context, round *round) error {
	b.round = round
	b.streams = make([]*http.Response, round.Clients)
	if b.query == nil {
		b.query = func(i int) url.Values {
			return url.Values{"db": {round.DB}, "coll": {collection}, "filter": {round.share(i)}}
		}
	}
	b.http = &http.Client{Transport: &http.Transport{}}
	round.begin()
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	b.end = end
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var g errgroup.Group
	g.SetLimit(connecting)
	for i := range b.streams {
		g.Go(func() (err error) {
			b.streams[i], err = b.connect(reading, i)
			return err
		})
	}
	return g.Wait()
}

// connect opens the i-th stream.
func (b *browsers) connect(ctx context.Context, i int) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.round.Node.HTTP+"/v1/events?"+b.query(i).Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	response, err := b.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("follow events: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("follow events: %s", response.Status)
	}
	return response, nil
}

// Read implements Contender.
func (b *browsers) Read(ctx context.Context) error {
	defer context.AfterFunc(ctx, b.end)()
	var g errgroup.Group
	for _, response := range b.streams {
		g.Go(func() error { return b.follow(sse.NewReader(response.Body)) })
	}
	return g.Wait()
}

// follow reads a stream until all streams together have delivered everything.
func (b *browsers) follow(events *sse.Reader) error {
	for {
		m, err := events.Next()
		now := time.Now()
		b.mu.Lock()
		check := b.round.check
		if !check.done() && err == nil && m.Event == "" {
			check.text(m.Data, now)
		}
		done := check.done()
		b.mu.Unlock()
		if done {
			b.end() // the others end, too
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
	}
}

// Close implements Contender.
func (b *browsers) Close() error {
	if b.end != nil {
		b.end()
	}
	for _, response := range b.streams {
		if response != nil {
			_ = response.Body.Close()
		}
	}
	if b.http != nil {
		b.http.CloseIdleConnections()
	}
	return nil
}

var _ contender = (*browsers)(nil)
