package contender

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/bench/server"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
	"github.com/mongostream/streamer/match"
)

// node is the whole node as cmd/streamer assembles it, with sessions that acknowledge what they get.
type node struct {
	round    *Round
	service  *wiring.Service
	sessions []*delivery.Session
	offered  sync.Mutex // guards the check where nobody wants anything: lanes ask side by side
	stop     context.CancelFunc
	ended    chan struct{} // closed when the node has ended
	err      error         // why, after that
}

// Readers implements Contender.
func (n *node) Readers(j Job) int {
	if j.PerSession {
		return j.Collections
	}
	return 1
}

// Open implements Contender.
func (n *node) Open(ctx context.Context, round *Round) error {
	n.round = round
	wiring.SpareMemory()
	for i := range n.Readers(round.Job) {
		if round.Gateway {
			break // its subscriber comes by itself
		}
		var cfg delivery.Config
		switch {
		case round.Unsubscribe:
			cfg.Wants = func(e *change.Event) bool {
				n.offered.Lock()
				defer n.offered.Unlock()
				round.Checks[0].Offered(e.Raw())
				return false
			}
		case round.PerSession:
			cfg.Wants = (&match.Selector{Coll: server.Collection(i)}).Selects
		}
		n.sessions = append(n.sessions, delivery.NewSession(cfg))
	}
	cfg, err := config.Load("", round.settings())
	if err != nil {
		return err
	}
	if n.service, err = wiring.Assemble(ctx, wiring.Options{Config: cfg, Version: "bench", Process: rand.Text(), Sessions: n.sessions}); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop, n.ended = stop, make(chan struct{})
	go func() {
		defer close(n.ended)
		n.err = n.service.Run(running)
	}()
	if err := n.await(ctx, func() bool { return n.service.Log().Stats().Open }); err != nil {
		return err
	}
	round.Begin()
	round.catchUp = round.Start != 0 && n.service.Log().End().Time.Time().Sub(time.Unix(round.Start, 0)) > recent
	return nil
}

// recent is how far back in the log a node opens its tail; lanes that begin further back are served by a catch-up.
const recent = time.Minute

// settings are the node's configuration where it is not the default.
func (r *Round) settings() []string {
	from := "now"
	if r.Start != 0 {
		from = time.Unix(r.Start, 0).UTC().Format(time.RFC3339)
	}
	settings := []string{
		"STREAMER_CLUSTER_ID=" + r.Name, "STREAMER_NODE_ID=bench", "STREAMER_MONGODB_URI=" + r.URI, "STREAMER_ETCD_ENDPOINTS=" + r.Etcd,
		"STREAMER_MONGODB_WATCH=" + r.DB + ".*", "STREAMER_START_FROM=" + from, "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0",
		fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", r.Partitions), "STREAMER_MONGODB_MAX_AWAIT=" + maxAwait.String(),
	}
	if r.Unmarked {
		settings = append(settings, "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=1h", "STREAMER_RELIABILITY_CHECKPOINT_EVENT_COUNT=1000000000")
	}
	return settings
}

// look is how often the node is looked at where it tells nothing by itself.
const look = time.Millisecond

// await waits until the condition holds.
func (n *node) await(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-n.ended:
			return errors.Join(errors.New("the node has ended"), n.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Read implements Contender.
func (n *node) Read(ctx context.Context) error {
	if n.round.Unsubscribe {
		return n.watch(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range n.sessions {
		g.Go(func() error { return n.subscribe(ctx, s, n.round.Checks[i]) })
	}
	err := g.Wait()
	if errors.Is(err, delivery.ErrClosed) {
		<-n.ended
		return errors.Join(err, n.err)
	}
	return err
}

// subscribe takes what a session gets and acknowledges it.
func (n *node) subscribe(ctx context.Context, s *delivery.Session, check *Check) error {
	for !check.Done() {
		batches, err := s.Receive(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, b := range batches {
			if b.Over() {
				s.Drop(b)
				continue
			}
			for i := range b.Events {
				check.Event(b.Events[i].Raw(), now)
			}
			s.Ack(b)
		}
	}
	return nil
}

// watch waits until the session has been offered everything.
func (n *node) watch(ctx context.Context) error {
	return n.await(ctx, func() bool {
		n.offered.Lock()
		defer n.offered.Unlock()
		return n.round.Checks[0].Done()
	})
}

// closeTimeout bounds a planned stop.
const closeTimeout = 20 * time.Second

// Close implements Contender.
func (n *node) Close() error {
	switch {
	case n.service == nil:
		return nil
	case n.stop == nil:
		n.service.Close()
		return nil
	}
	n.stop()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-n.ended:
		return n.err
	case <-timeout.C:
		return errors.New("the node does not stop")
	}
}

var _ Contender = (*node)(nil)
