package rewindtest

import (
	"errors"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// TestStore runs the suite. Open returns a new, empty store for every case, as for checkpointtest.TestStore.
func TestStore(t *testing.T, open func(t *testing.T) checkpointtest.Harness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"where nothing was saved there is no history", testNoHistory},
		{"the history has what is not routine, and one a minute of the rest", testHistoryThins},
		{"a clock that goes back thins the history no more than one that goes on", testHistoryClock},
		{"the history keeps the last marks", testHistoryLength},
		{"the history survives the store that wrote it", testHistoryReopened},
		{"what is not saved is not in the history", testHistoryOfRefused},
		{"many marks are entries of their histories at once", testHistoryOfMany},
		{"a deleted mark takes its history along", testHistoryDeleted},
		{"a rewind moves the mark back and ends the term", testRewind},
		{"a rewind where nothing was saved", testRewindFirst},
		{"a rewind forward is refused and touches nothing", testRewindForward},
		{"a rewind ends the term of one partition only", testRewindOne},
		{"rewinds follow each other", testRewindTwice},
		{"a save of a lower generation is fenced", testLowerGeneration},
		{"a save of a higher generation raises it", testHigherGeneration},
		{"a rewind and saves at once never mix", testRewindRace},
		{"rewinds at once are all done", testRewindsRace},
		{"a write that arrives after a rewind undoes nothing", testLateAfterRewind},
		{"an adopted origin fences every epoch before", testAdopt},
		{"an origin that has changed is not adopted", testAdoptMoved},
		{"of many who adopt one does", testAdoptRace},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(harness{open(t), t}) })
	}
}

// harness adds to a Harness what the cases say over and over.
type harness struct {
	checkpointtest.Harness
	*testing.T
}

// found writes the origin.
func (h harness) found() checkpoint.Origin {
	h.Helper()
	o, err := h.Store.Found(h.Context(), checkpointtest.Origin("c1"))
	if err != nil {
		h.Fatalf("found: %v", err)
	}
	return o
}

// terms begins terms of partitions and claims them. What the claim finds it returns too.
func (h harness) terms(partitions ...change.Partition) ([]change.Term, []checkpoint.Mark) {
	h.Helper()
	terms := h.Begin(partitions...)
	marks, err := h.Store.Claim(h.Context(), terms)
	if err != nil {
		h.Fatalf("claim: %v", err)
	}
	return terms, marks
}

// term begins a term of a partition and claims it.
func (h harness) term(p change.Partition) change.Term {
	h.Helper()
	terms, _ := h.terms(p)
	return terms[0]
}

func (h harness) save(m checkpoint.Mark) error {
	h.Helper()
	return h.Store.Save(h.Context(), []checkpoint.Mark{m})[0]
}

func (h harness) mustSave(m checkpoint.Mark) {
	h.Helper()
	if err := h.save(m); err != nil {
		h.Fatalf("save %s: %v", m.Position, err)
	}
}

func (h harness) wantFenced(what string, err error) {
	h.Helper()
	if !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("%s gave %v", what, err)
	}
}

func (h harness) load(p change.Partition) checkpoint.Mark {
	h.Helper()
	m, err := h.Store.Load(h.Context(), p)
	if err != nil {
		h.Fatalf("load: %v", err)
	}
	return m
}

func (h harness) wantAt(p change.Partition, want change.Position) {
	h.Helper()
	if m := h.load(p); m.Position.Compare(want) != 0 {
		h.Fatalf("the mark stands at %s, want %s", m.Position, want)
	}
}

func (h harness) rewind(p change.Partition, to change.Position) checkpoint.Mark {
	h.Helper()
	m, err := h.Store.Rewind(h.Context(), p, to, "ann", "orders were lost downstream")
	if err != nil {
		h.Fatalf("rewind: %v", err)
	}
	return m
}

func (h harness) history(p change.Partition) []checkpoint.Mark {
	h.Helper()
	marks, err := h.Reopen().History(h.Context(), p)
	if err != nil {
		h.Fatalf("history: %v", err)
	}
	return marks
}

// markAt returns the mark of the n-th event, saved for a reason so many seconds after the suite's beginning.
func markAt(term change.Term, n int, reason checkpoint.Reason, seconds int) checkpoint.Mark {
	m := checkpointtest.MarkAt(term, checkpointtest.Event(n))
	m.At = m.At.Add(time.Duration(seconds) * time.Second)
	m.Reason = reason
	return m
}
