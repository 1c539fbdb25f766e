package handoff_test

import (
	"context"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/transcript"
)

// A stage is a world in which a serves and a handoff to b is begun.
type stage struct {
	*world
	a, b, c *node
}

// play lets a handoff from a to b happen, and what setting prepares for it; c is there to claim what nobody owns.
func play(t *testing.T, cfg handoff.Config, setting func(s *stage)) *stage {
	w := newWorld(t)
	s := &stage{world: w}
	s.a = w.newNode("a", cfg, 1100*time.Microsecond)
	s.b = w.newNode("b", cfg, 1300*time.Microsecond)
	s.c = w.newNode("c", cfg, 1700*time.Microsecond)
	w.mu.Lock()
	s.b.reluctant = true
	w.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	w.running.Go(func() { w.run(ctx) })
	w.pause(time.Second + 500*time.Microsecond)
	setting(s)
	s.begin(s.a, s.b)
	w.settle()
	w.close(stop)
	return s
}

// begin begins a handoff, as an operator does.
func (s *stage) begin(from, to *node) {
	s.mu.Lock()
	owner := s.mu.owner
	s.mu.longest = 0
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
	defer cancel()
	_, _ = s.c.Prepare(ctx, ledger.Record{
		Partition: p, From: ledger.Party{Node: from.name, Process: from.process}, To: ledger.Party{Node: to.name, Process: to.process},
		Epoch: owner.Epoch, Cause: "test", By: "operator", Started: time.Now(), Phase: ledger.Prepared,
	})
}

// close ends everything.
func (w *world) close(stop context.CancelFunc) {
	stop()
	w.mu.Lock()
	nodes := make([]*node, 0, len(w.mu.nodes))
	for _, n := range w.mu.nodes {
		nodes = append(nodes, n)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		n.stop()
		n.ended.Wait()
	}
	w.running.Wait()
}

// Faults, at whatever moment.
func faults() map[string]func(s *stage) {
	return map[string]func(s *stage){
		"donor-killed":     func(s *stage) { s.a.kill() },
		"recipient-killed": func(s *stage) { s.b.kill() },
		"donor-frozen":     func(s *stage) { s.a.freeze(15 * time.Second) },
		"recipient-frozen": func(s *stage) { s.b.freeze(15 * time.Second) },
		"donor-cut":        func(s *stage) { s.a.isolate(true) },
		"recipient-cut":    func(s *stage) { s.b.isolate(true) },
		"ledger-away": func(s *stage) {
			for _, n := range []*node{s.a, s.b, s.c} {
				n.isolate(true)
			}
			s.running.Go(func() {
				s.pause(4*time.Second + 300*time.Microsecond)
				for _, n := range []*node{s.a, s.b, s.c} {
					n.isolate(false)
				}
			})
		},
	}
}

func config() handoff.Config {
	return handoff.Config{Overlap: time.Second, PrepareTimeout: 10 * time.Second}
}

// TestEveryStepSurvivesEveryFault lets every fault happen at every step.
func TestEveryStepSurvivesEveryFault(t *testing.T) {
	for _, point := range []string{"warm", "answer", "switch sent", "overlap", "serve", "close"} {
		for name, fault := range faults() {
			t.Run(point+"/"+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T) {
					s := play(t, config(), func(s *stage) { s.at(point, func() { fault(s) }) })
					transcript.Compare(t, point[:min(6, len(point))]+"-"+name, s.transcript())
				})
			})
		}
	}
}

// TestErrorsOfTheNodesThemselves lets each call fail once.
func TestErrorsOfTheNodesThemselves(t *testing.T) {
	for call, of := range map[string]string{"warm": "b", "answer": "b", "seal": "a", "switch": "a", "serve": "b", "close": "a"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(t *testing.T) {
				s := play(t, config(), func(s *stage) { map[string]*node{"a": s.a, "b": s.b}[of].fail(call, errBroken) })
				transcript.Compare(t, call+"-error", s.transcript())
			})
		})
	}
}

// TestOtherWays are handoffs without a fault, and what people do meanwhile.
func TestOtherWays(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     handoff.Config
		setting func(s *stage)
	}{
		"plain":      {config(), func(*stage) {}},
		"no-overlap": {handoff.Config{PrepareTimeout: 10 * time.Second}, func(*stage) {}},
		"too-cold":   {config(), func(s *stage) { s.mu.Lock(); s.b.warming = time.Minute; s.mu.Unlock() }},
		"apart":      {config(), func(s *stage) { s.mu.Lock(); s.apart, s.mu.fence = true, s.mu.owner.Epoch; s.mu.Unlock() }},
		"donor-stops": {config(), func(s *stage) {
			s.at("answer", func() { s.say("a is asked to stop"); s.a.stop() })
			s.mu.Lock()
			defer s.mu.Unlock()
			s.a.reluctant = true
		}},
		"donor-stops-in-the-overlap": {config(), func(s *stage) {
			s.at("overlap", func() { s.say("a is asked to stop"); s.a.stop() })
		}},
		"recipient-stops": {config(), func(s *stage) {
			s.at("warm", func() { s.say("b is asked to stop"); s.b.stop() })
		}},
		"evicted":                {config(), func(s *stage) { s.at("answer", s.evict) }},
		"evicted-while-switched": {config(), func(s *stage) { s.at("switch sent", s.evict) }},
		"record-taken-away": {config(), func(s *stage) {
			s.at("answer", func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.sayLocked("somebody takes the record away")
				s.mu.record = ledger.Record{}
				s.writeLocked()
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T) {
				transcript.Compare(t, name, play(t, c.cfg, c.setting).transcript())
			})
		})
	}
}

// evict takes the partition from its owner, as the leader does.
func (s *stage) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked("the leader evicts %s", s.mu.owner.Node)
	s.mu.owner.Process, s.mu.owner.Node, s.mu.owner.Epoch, s.mu.lease = "", "", change.Epoch{}, nil
	s.writeLocked()
}

// TestMoveLeavesNoGap is the point of it all.
func TestMoveLeavesNoGap(t *testing.T) {
	inWorld(t, func(t *testing.T) {
		s := play(t, config(), func(*stage) {})
		if s.mu.longest > 2*tick {
			t.Errorf("the session that follows waited %s for an event, one comes every %s", s.mu.longest, tick)
		}
		if len(s.mu.reports) != 2 || s.mu.reports[0].Outcome != handoff.Moved || s.mu.reports[1].Outcome != handoff.Moved {
			t.Errorf("reports: %+v", s.mu.reports)
		}
	})
}
