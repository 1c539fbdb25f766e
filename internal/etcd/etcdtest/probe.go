package etcdtest

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// probing is the interval of a Probe's questions.
	probing = 100 * time.Millisecond
	// probeGap is how far apart two answers are at most between which the cluster counts as
	// answering.
	probeGap = time.Second
	// probeRun is how long answers must have come without a break to count.
	probeRun = 2 * time.Second
)

// A Probe asks a cluster again and again, as a client that has nothing to do with the program under
// test. It knows when the cluster answered: one member of three may fail, but a machine that is
// short of CPU time may keep all of them silent.
type Probe struct {
	mu struct {
		sync.Mutex

		runs   []run
		broken bool // the last question was not answered
	}
}

// A run is a time during which the cluster answered every question.
type run struct{ from, to time.Time }

// Probe asks every member, until the test ends. The cluster answers if one of them does within a
// time.
func (c *Cluster) Probe(within time.Duration) *Probe {
	c.t.Helper()
	p := new(Probe)
	ctx, end := context.WithCancel(context.Background())
	clients := make([]*clientv3.Client, len(c.members))
	for i, m := range c.members {
		clients[i] = Client(c.t, []string{m.client})
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(probing)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.record(anyAnswers(ctx, clients, within))
			case <-ctx.Done():
				return
			}
		}
	})
	c.t.Cleanup(func() {
		end()
		asking.Wait()
		for _, client := range clients {
			_ = client.Close()
		}
	})
	return p
}

// anyAnswers reports whether one of the members answers a read that needs most of them.
func anyAnswers(ctx context.Context, clients []*clientv3.Client, within time.Duration) bool {
	ctx, end := context.WithTimeout(ctx, within)
	defer end()
	replies := make(chan error, len(clients))
	for _, client := range clients {
		go func() {
			_, err := client.Get(ctx, "probe")
			replies <- err
		}()
	}
	for range clients {
		if err := <-replies; err == nil {
			return true
		}
	}
	return false
}

func (p *Probe) record(answered bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.mu.runs) - 1
	switch {
	case !answered:
		p.mu.broken = true
	case last >= 0 && !p.mu.broken && now.Sub(p.mu.runs[last].to) < probeGap:
		p.mu.runs[last].to = now
	default:
		p.mu.runs, p.mu.broken = append(p.mu.runs, run{from: now, to: now}), false
	}
}

// Answered returns for how long in all the cluster answered after one moment and before another.
// Only times of some length count, in which a node can do what it has to.
func (p *Probe) Answered(from, to time.Time) (sum time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.runs {
		if r.from.Before(from) {
			r.from = from
		}
		if r.to.After(to) {
			r.to = to
		}
		if lasted := r.to.Sub(r.from); lasted >= probeRun {
			sum += lasted
		}
	}
	return sum
}
