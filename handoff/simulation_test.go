package handoff_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mongostream/streamer/handoff"
)

// simulate lets a few handoffs happen among three nodes while whatever may go wrong does, and holds what comes of it against what is
// promised. It returns how many handoffs have moved the partition.
func simulate(t *testing.T, seed uint64) (moved int) {
	inWorld(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t)
		w.tick, w.rest, w.apart = 50*time.Millisecond, 35*time.Second, r.IntN(3) == 0
		cfg := handoff.Config{PrepareTimeout: 5 * time.Second, SwitchTimeout: 3 * time.Second, ServeTimeout: 6 * time.Second}
		if r.IntN(4) > 0 {
			cfg.Overlap = time.Second
		}
		names := []string{"a", "b", "c"}
		var all []*node
		start := func(name string) {
			n := w.newNode(name, cfg, time.Duration(500+r.IntN(5000))*time.Microsecond)
			w.mu.Lock()
			defer w.mu.Unlock()
			n.warming = time.Duration(r.Int64N(int64(2 * time.Second)))
			if r.IntN(2) == 0 {
				n.chaos = rand.New(rand.NewPCG(r.Uint64(), 1))
			}
			all = append(all, n)
		}
		for _, name := range names {
			start(name)
		}
		ctx, stop := context.WithCancel(context.Background())
		w.running.Go(func() { w.run(ctx) })
		pick := func() *node {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.mu.nodes[names[r.IntN(len(names))]]
		}
		s := &stage{world: w}
		for range 12 {
			w.pause(time.Duration(r.Int64N(int64(3*time.Second))) + time.Microsecond)
			victim := pick()
			switch r.IntN(14) {
			case 0:
				victim.kill()
				w.pause(time.Duration(r.Int64N(int64(11 * time.Second))))
				start(victim.name)
			case 1:
				victim.freeze(time.Duration(r.Int64N(int64(14 * time.Second))))
			case 2, 3:
				victim.isolate(true)
				w.running.Go(func() {
					w.pause(time.Duration(seed%7) * time.Second)
					victim.isolate(false)
				})
			case 4:
				s.evict()
			case 5:
				calls := []string{"warm", "answer", "seal", "switch", "serve", "close"}
				victim.fail(calls[r.IntN(len(calls))], errBroken)
			default:
				from, to := s.holder(), victim
				if s.c = pick(); from != nil && from != to {
					s.begin(from, to)
				}
			}
		}
		w.settle()
		moved = len(w.mu.switched)
		stop()
		for _, n := range all {
			n.stop()
			n.ended.Wait()
		}
		w.running.Wait()
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, w.transcript())
		}
	})
	return moved
}

// holder is the node that owns the partition.
func (s *stage) holder() *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.mu.nodes[s.mu.owner.Node]; n != nil && n.process == s.mu.owner.Process {
		return n
	}
	return nil
}

// simulateMany runs seeds, and fails where hardly any handoff gets anywhere: then nothing is proven.
func simulateMany(t *testing.T, first, count uint64) {
	moved := 0
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		moved += simulate(t, seed)
	}
	t.Logf("%d seeds, %d partitions moved", count, moved)
	if !t.Failed() && uint64(moved) < count {
		t.Errorf("only %d partitions moved in %d runs", moved, count)
	}
}

func TestNothingIsLostWhateverHappens(t *testing.T) { simulateMany(t, 1, 500) }
