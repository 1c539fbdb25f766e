package process

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/workload"
)

// A chronicle is how long changes took from their writing to a gateway's handler.
type chronicle struct {
	mu    sync.Mutex
	delay []time.Duration
	from  []time.Time // when they were written
}

func (c *chronicle) note(took time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay, c.from = append(c.delay, took), append(c.from, now.Add(-took))
}

// since returns the p99 and the longest of what was written after a moment.
func (c *chronicle) since(begun time.Time) (p99, longest time.Duration, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var some []time.Duration
	for i, d := range c.delay {
		if c.from[i].After(begun) {
			some = append(some, d)
		}
	}
	slices.Sort(some)
	if len(some) == 0 {
		return 0, 0, 0
	}
	return some[len(some)*99/100], some[len(some)-1], len(some)
}

// noticed is how much longer changes may take while nodes are restarted than they take on the same
// machine at the same time otherwise.
const noticed = 250 * time.Millisecond

// Three nodes are restarted one after the other under load, with gateways that follow the owners
// and others that do not: nobody misses anything, changes go on coming, and partitions are back
// with their nodes afterwards for the most part. How slow the machine is tells a gateway at a
// fourth node, which is not restarted.
func TestRollingRestartIsNotNoticed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 4, unhurried)
	f.begin()
	addresses, stays := f.addresses()[:3], f.addresses()[3:]
	gateways := []client.Partitions{client.Owned, client.All, client.Owned, client.All}
	guests, chronicles := make([]*workload.Check, len(gateways)), make([]*chronicle, len(gateways))
	for i, which := range gateways {
		check, kept := workload.NewCheck(&f.ledger), &chronicle{}
		guests[i], chronicles[i] = check, kept
		f.handle(fmt.Sprintf("gateway-%d", i), check, kept, slices.Concat(addresses[i%3:], addresses[:i%3]), which)
	}
	resident, usual := workload.NewCheck(&f.ledger), &chronicle{}
	f.handle("resident", resident, usual, stays, client.All)
	guests = append(guests, resident)
	stop := f.write(150)
	until(t, "changes come", func() bool {
		return !slices.ContainsFunc(guests, func(c *workload.Check) bool { n, _ := c.Delivered(); return n < 100 })
	})
	before, begun := f.view(), time.Now()
	for _, s := range f.ships[:3] {
		at := time.Now()
		s.signal(syscall.SIGTERM)
		if code := s.wait(); code != 0 {
			t.Errorf("%s: exit code %d", s.name, code)
		}
		stopped := time.Since(at)
		s.launch()
		s.await(nodeRuns)
		until(t, "it has a share again", func() bool { return len(epochs(f.view(), s.name)) >= 3 })
		t.Logf("%s stopped within %v, and had a share again after %v", s.name, stopped, time.Since(at))
	}
	f.settled(nil, patience)
	stop()
	until(t, "everything has come", func() bool {
		return !slices.ContainsFunc(guests, func(c *workload.Check) bool { return c.Missing() != 0 })
	})
	slow, _, _ := usual.since(begun)
	for i, kept := range chronicles {
		p99, longest, n := kept.since(begun)
		r := guests[i].Report()
		t.Logf("gateway %d (%v): %d changes during the restarts, p99 %v, longest %v, %+v", i, gateways[i], n, p99, longest, r)
		if r.OutOfOrder != 0 || n == 0 {
			t.Errorf("gateway %d: %+v", i, r)
		}
		if p99 > slow+noticed {
			t.Errorf("gateway %d: p99 %v, and %v where nothing is restarted", i, p99, slow)
		}
	}
	t.Logf("without restarts: p99 %v", slow)
	after, back := f.view(), 0
	for p, o := range after.Owners {
		if o.Node == before.Owners[p].Node {
			back++
		}
	}
	t.Logf("%d of %d partitions are where they were", back, partitions)
	if back < partitions/2 {
		t.Errorf("only %d of %d partitions are where they were", back, partitions)
	}
	f.judge()
}

// handle attaches a gateway whose changes are checked and timed, until the test ends.
func (f *fleet) handle(id string, check *workload.Check, kept *chronicle, addresses []string, which client.Partitions) {
	f.t.Helper()
	c, err := client.New(client.Config{
		Addresses: addresses, Subscriber: id, Start: client.StartNow, Partitions: which,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n.(type) {
			case client.Resync, client.Rewound, client.Rejected:
				f.t.Errorf("%s is told of a loss that there is not: %+v", id, n)
			}
			return nil
		},
	})
	if err == nil {
		err = c.Subscribe(client.Subscription{ID: "all", DB: f.lab.database, Format: client.JSON}, func(_ context.Context, c client.Change) error {
			now := time.Now()
			took, err := check.Timed(c.Data, now)
			if err == nil {
				kept.note(took, now)
			}
			return err
		})
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
			f.t.Errorf("gateway: %v", err)
		}
	})
	until(f.t, "the gateway is connected", func() bool { return c.Stats().Sessions > 0 })
}
