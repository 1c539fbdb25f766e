package checkpointtest

import (
	"errors"
	"slices"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

func testFenced(h harness) {
	old := h.term(0)
	h.mustSave(MarkAt(old, Event(1)))
	young := h.term(0)
	before := h.Raw(0)
	for _, position := range []change.Position{Event(0), Event(1), Event(2)} {
		if err := h.save(MarkAt(old, position)); !errors.Is(err, checkpoint.ErrFenced) {
			h.Errorf("a save at %s with the old epoch gave %v", position, err)
		}
	}
	if err := h.Reopen().Save(h.Context(), []checkpoint.Mark{MarkAt(old, Event(2))})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("a save with the old epoch by a store that remembers nothing gave %v", err)
	}
	if after := h.Raw(0); !slices.Equal(before, after) {
		h.Errorf("the mark changed from %q to %q", before, after)
	}
	h.mustSave(MarkAt(young, Event(2)))
	h.wantAt(0, Event(2))
}

func testFencedAmongMany(h harness) {
	terms := h.terms(all()...)
	const deposed = 130
	h.term(deposed)
	marks := make([]checkpoint.Mark, len(terms))
	for i, term := range terms {
		marks[i] = MarkAt(term, Event(i+1))
	}
	for i, err := range h.Store.Save(h.Context(), marks) {
		if i == deposed {
			if !errors.Is(err, checkpoint.ErrFenced) {
				h.Errorf("the deposed owner's save gave %v", err)
			}
			continue
		}
		if err != nil {
			h.Errorf("mark %d: %v", i, err)
		}
	}
	stored, err := h.Store.List(h.Context())
	if err != nil || len(stored) != len(terms)-1 {
		h.Errorf("%d marks are stored, %v", len(stored), err)
	}
}

func testEpochsRace(h harness) {
	const saves, lead = 30, 1000
	old, other := h.term(0), h.Reopen()
	var wg sync.WaitGroup
	wg.Go(func() {
		fenced := false
		for n := range saves {
			err := h.save(MarkAt(old, Event(n)))
			if err != nil && !errors.Is(err, checkpoint.ErrFenced) {
				h.Errorf("save %d of the old epoch: %v", n, err)
			}
			if err == nil && fenced {
				h.Errorf("save %d of the old epoch passed after one was fenced", n)
			}
			fenced = err != nil
		}
	})
	young := h.Begin(0)
	if _, err := other.Claim(h.Context(), young); err != nil {
		h.Fatalf("claim: %v", err)
	}
	for n := range saves {
		if err := other.Save(h.Context(), []checkpoint.Mark{MarkAt(young[0], Event(lead+n))})[0]; err != nil {
			h.Errorf("save %d of the higher epoch: %v", n, err)
		}
	}
	wg.Wait()
	m, err := h.Store.Load(h.Context(), 0)
	if err != nil || m.Epoch != young[0].Epoch || m.Position.Compare(Event(lead+saves-1)) != 0 {
		h.Errorf("the mark is of epoch %s at %s, %v; want %s at %s", m.Epoch, m.Position, err, young[0].Epoch, Event(lead+saves-1))
	}
}

func testClaim(h harness) {
	first := h.terms(5, 9)
	h.mustSave(MarkAt(first[1], Event(3)))
	terms := h.Begin(4, 9, 5)
	marks, err := h.Store.Claim(h.Context(), terms)
	if err != nil {
		h.Fatalf("claim: %v", err)
	}
	if len(marks) != 3 || !marks[0].Position.IsZero() || marks[1].Position.Compare(Event(3)) != 0 || !marks[2].Position.IsZero() {
		h.Errorf("claimed %v", marks)
	}
	if marks[1].Epoch != first[1].Epoch || marks[1].Partition != 9 {
		h.Errorf("the mark found is %v", marks[1])
	}
	// Claiming again, after an answer got lost, is no error.
	if marks, err = h.Store.Claim(h.Context(), terms); err != nil || marks[1].Position.Compare(Event(3)) != 0 {
		h.Errorf("claimed again %v, %v", marks, err)
	}
	if marks, err = h.Store.Claim(h.Context(), nil); err != nil || len(marks) != 0 {
		h.Errorf("claimed nothing %v, %v", marks, err)
	}
	many := h.Begin(all()...)
	if marks, err = h.Store.Claim(h.Context(), many); err != nil || len(marks) != len(many) || marks[9].Position.IsZero() {
		h.Errorf("claimed %d of %d, %v", len(marks), len(many), err)
	}
}

func testClaimFenced(h harness) {
	old := h.terms(0, 1)
	h.mustSave(MarkAt(old[0], Event(1)))
	young := h.terms(0)
	for name, store := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		if marks, err := store.Claim(h.Context(), old); !errors.Is(err, checkpoint.ErrFenced) {
			h.Errorf("%s store let the old epoch claim: %v, %v", name, marks, err)
		}
	}
	h.mustSave(MarkAt(young[0], Event(2)))
	h.mustSave(MarkAt(old[1], Event(2)))
	if err := h.save(MarkAt(old[0], Event(3))); !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("save with the old epoch gave %v", err)
	}
}
