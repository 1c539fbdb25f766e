package process

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/workload"
)

// A guest is a gateway: a client in this process.
type guest struct {
	t     *testing.T
	check *workload.Check
	ready chan struct{} // holds a signal for each Connected

	mu       sync.Mutex
	arrivals []printed
	losses   []string
}

// attend attaches a gateway that wants everything from now on, and returns when it is connected.
func (f *fleet) attend(id string, which client.Partitions, addresses ...string) *guest {
	f.t.Helper()
	g := &guest{t: f.t, check: workload.NewCheck(&f.ledger), ready: make(chan struct{}, 100)}
	c, err := client.New(client.Config{
		Addresses: addresses, Subscriber: id, Start: client.StartNow, Partitions: which, MaxReconnectWait: 200 * time.Millisecond,
		OnNotice: func(_ context.Context, n client.Notice) error { g.hear(n); return nil },
	})
	if err == nil {
		err = c.Subscribe(client.Subscription{ID: "all", DB: f.lab.database, Format: client.JSON}, g.take)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("gateway %s: %v", id, err)
		}
	})
	g.connected()
	return g
}

// connected waits for the next session.
func (g *guest) connected() {
	g.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-g.ready:
	case <-timeout.C:
		g.t.Fatal("the gateway is not connected in time")
	}
}

func (g *guest) take(_ context.Context, c client.Change) error {
	now := time.Now()
	took, err := g.check.Timed(c.Data, now)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.arrivals = append(g.arrivals, printed{at: now, written: now.Add(-took)})
	return nil
}

func (g *guest) hear(n client.Notice) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := n.(type) {
	case client.Connected:
		select {
		case g.ready <- struct{}{}:
		default: // nodes that all stop are tried very often
		}
	case client.Resync, client.Rewound, client.Rejected:
		g.losses = append(g.losses, fmt.Sprintf("%T%+v", n, n))
	}
}

// between counts what was written after a moment, or whenever if that is zero, and has come after
// another and before a third.
func (g *guest) between(written, from, to time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.arrivals {
		if (written.IsZero() || a.written.After(written)) && a.at.After(from) && a.at.Before(to) {
			n++
		}
	}
	return n
}

// judge waits until everything that was written has come.
func (g *guest) judge() {
	g.t.Helper()
	until(g.t, "everything has come to the gateway", func() bool { return g.check.Missing() == 0 })
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.check.Report(); r.OutOfOrder != 0 {
		g.t.Errorf("gateway: %+v", r)
	}
	if len(g.losses) > 0 {
		g.t.Errorf("the gateway was told of losses that there are not: %q", g.losses)
	}
}
