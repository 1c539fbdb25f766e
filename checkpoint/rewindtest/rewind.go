package rewindtest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

func testRewind(h harness) {
	o := h.found()
	term := h.term(7)
	h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
	before := time.Now()
	got := h.rewind(7, checkpointtest.Event(8))
	want := checkpoint.Mark{
		Partition: 7, Position: checkpointtest.Event(8), Generation: 1, Epoch: change.Epoch{Incarnation: o.Incarnation}, At: got.At,
		By: "ann", Reason: checkpoint.ReasonRewind, Note: "orders were lost downstream",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("rewind returned another mark (-want +got):\n%s", diff)
	}
	if got.At.Before(before.Add(-time.Second)) || got.At.After(time.Now().Add(time.Second)) {
		h.Errorf("rewound at %s", got.At)
	}
	if diff := cmp.Diff(want, h.load(7)); diff != "" {
		h.Errorf("another mark is stored (-want +got):\n%s", diff)
	}
	for _, n := range []int{4, 8, 12, 80} {
		h.wantFenced("a save of the term that was ended", h.save(markAt(term, n, checkpoint.ReasonInterval, 1)))
	}
	if marks, err := h.Store.Claim(h.Context(), []change.Term{term}); !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("the term that was ended claimed again: %v, %v", marks, err)
	}
	h.wantAt(7, checkpointtest.Event(8))

	terms, marks := h.terms(7)
	if diff := cmp.Diff([]checkpoint.Mark{want}, marks); diff != "" {
		h.Errorf("the next claim found another mark (-want +got):\n%s", diff)
	}
	h.wantFenced("a save of the term that was ended", h.save(markAt(term, 80, checkpoint.ReasonInterval, 1)))
	h.mustSave(markAt(terms[0], 12, checkpoint.ReasonBegin, 2))
	if m := h.load(7); m.Generation != 1 || m.Position.Compare(checkpointtest.Event(12)) != 0 {
		h.Errorf("the mark after the rewind is %+v", m)
	}
	h.wantHistory(7, 12, 8, 40)
}

func testRewindFirst(h harness) {
	o := h.found()
	if _, err := h.Store.Rewind(h.Context(), 0, change.At(o.Start.Next()), "ann", ""); !errors.Is(err, checkpoint.ErrForward) {
		h.Errorf("a rewind behind the origin's start gave %v", err)
	}
	to := change.At(change.Timestamp{T: o.Start.T - 3600, I: 1})
	if m := h.rewind(0, to); m.Generation != 1 || m.Position.Compare(to) != 0 {
		h.Errorf("rewound to %+v", m)
	}
	terms, marks := h.terms(0)
	if marks[0].Position.Compare(to) != 0 {
		h.Errorf("the claim found %s", marks[0].Position)
	}
	h.mustSave(markAt(terms[0], 4, checkpoint.ReasonBegin, 0))
}

func testRewindForward(h harness) {
	h.found()
	term := h.term(0)
	h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
	before := h.Raw(0)
	for name, to := range map[string]change.Position{
		"the next event": checkpointtest.Event(41), "a later time": change.At(checkpointtest.Event(44).Time), "nowhere": {},
	} {
		m, err := h.Store.Rewind(h.Context(), 0, to, "ann", "")
		if err == nil || !to.IsZero() && !errors.Is(err, checkpoint.ErrForward) {
			h.Errorf("a rewind to %s gave %v, %v", name, m, err)
		}
	}
	if _, err := h.Store.Rewind(h.Context(), checkpointtest.Partitions, checkpointtest.Event(1), "ann", ""); err == nil {
		h.Error("a partition that is none was rewound")
	}
	if after := h.Raw(0); !slices.Equal(before, after) {
		h.Errorf("the mark changed from %q to %q", before, after)
	}
	h.mustSave(markAt(term, 44, checkpoint.ReasonInterval, 1))
	// To where it stands is not forward: it ends the term, and what is in flight comes again.
	if m := h.rewind(0, checkpointtest.Event(44)); m.Generation != 1 {
		h.Errorf("rewound to %+v", m)
	}
	h.wantFenced("a save of the term that was ended", h.save(markAt(term, 48, checkpoint.ReasonInterval, 2)))
}

func testRewindOne(h harness) {
	h.found()
	terms, _ := h.terms(0, 1, 2)
	for _, term := range terms {
		h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
	}
	h.rewind(1, checkpointtest.Event(4))
	var marks []checkpoint.Mark
	for _, term := range terms {
		marks = append(marks, markAt(term, 44, checkpoint.ReasonInterval, 1))
	}
	results := h.Store.Save(h.Context(), marks)
	if results[0] != nil || results[2] != nil {
		h.Errorf("the others were not saved: %v", results)
	}
	h.wantFenced("a save of the term that was ended", results[1])
	h.wantAt(0, checkpointtest.Event(44))
	h.wantAt(1, checkpointtest.Event(4))
	again := h.term(1)
	h.mustSave(markAt(again, 8, checkpoint.ReasonBegin, 2))
	h.mustSave(markAt(terms[0], 48, checkpoint.ReasonInterval, 3))
}

func testRewindTwice(h harness) {
	h.found()
	h.mustSave(markAt(h.term(0), 40, checkpoint.ReasonBegin, 0))
	for i, n := range []int{32, 24, 16} {
		if m := h.rewind(0, checkpointtest.Event(n)); m.Generation != uint64(i+1) {
			h.Errorf("rewind %d gave generation %d", i, m.Generation)
		}
	}
	h.wantHistory(0, 16, 24, 32, 40)
	terms, marks := h.terms(0)
	if marks[0].Generation != 3 {
		h.Errorf("the claim found generation %d", marks[0].Generation)
	}
	h.mustSave(markAt(terms[0], 20, checkpoint.ReasonBegin, 1))
	if _, err := h.Reopen().Rewind(h.Context(), 0, checkpointtest.Event(8), "bob", ""); err != nil {
		h.Fatalf("rewind by another: %v", err)
	}
	if m := h.load(0); m.Generation != 4 || m.By != "bob" {
		h.Errorf("the mark is %+v", m)
	}
	h.mustSave(markAt(h.term(0), 12, checkpoint.ReasonBegin, 2))
}

func testLowerGeneration(h harness) {
	h.found()
	h.mustSave(markAt(h.term(0), 40, checkpoint.ReasonBegin, 0))
	h.rewind(0, checkpointtest.Event(8))
	h.rewind(0, checkpointtest.Event(4))
	term := h.term(0)
	lower := markAt(term, 12, checkpoint.ReasonInterval, 1)
	lower.Generation = 1
	h.wantFenced("a save of generation 1 of 2", h.save(lower))
	h.wantFenced("the same by a store that remembers nothing", h.Reopen().Save(h.Context(), []checkpoint.Mark{lower})[0])
	h.wantAt(0, checkpointtest.Event(4))
	lower.Generation = 2
	h.mustSave(lower)
	lower.Position, lower.Generation = checkpointtest.Event(16), 0
	h.mustSave(lower)
	if m := h.load(0); m.Generation != 2 || m.Position.Compare(checkpointtest.Event(16)) != 0 {
		h.Errorf("the mark is %+v", m)
	}
}

func testHigherGeneration(h harness) {
	term := h.term(0)
	m := markAt(term, 12, checkpoint.ReasonImport, 1)
	m.Generation = 5
	h.mustSave(m)
	h.mustSave(markAt(term, 16, checkpoint.ReasonInterval, 2))
	if got := h.load(0); got.Generation != 5 || got.Position.Compare(checkpointtest.Event(16)) != 0 {
		h.Errorf("the mark is %+v", got)
	}
}

func testRewindRace(h harness) {
	h.found()
	other := h.Reopen()
	for round := range 12 {
		p := change.Partition(round)
		term := h.term(p)
		h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
		var wg sync.WaitGroup
		wg.Go(func() {
			fenced := false
			for n := range 8 {
				err := h.save(markAt(term, 44+4*n, checkpoint.ReasonInterval, n))
				if err != nil && !errors.Is(err, checkpoint.ErrFenced) {
					h.Errorf("save %d: %v", n, err)
				}
				if err == nil && fenced {
					h.Errorf("save %d passed after one was fenced", n)
				}
				fenced = err != nil
			}
		})
		m, err := other.Rewind(h.Context(), p, checkpointtest.Event(4), "ann", "")
		wg.Wait()
		if err != nil || m.Generation != 1 {
			h.Fatalf("rewind: %+v, %v", m, err)
		}
		if diff := cmp.Diff(m, h.load(p)); diff != "" {
			h.Fatalf("round %d: what stands is not the rewind's mark (-want +got):\n%s", round, diff)
		}
		if history := h.history(p); history[0].Reason != checkpoint.ReasonRewind {
			h.Errorf("the newest entry is %+v", history[0])
		}
	}
}

func testRewindsRace(h harness) {
	h.found()
	h.mustSave(markAt(h.term(0), 40, checkpoint.ReasonBegin, 0))
	const rewinds = 4
	var wg sync.WaitGroup
	for i := range rewinds {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			if _, err := store.Rewind(h.Context(), 0, checkpointtest.Event(4), "ann", ""); err != nil {
				h.Errorf("rewind %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if m := h.load(0); m.Generation != rewinds {
		h.Errorf("after %d rewinds the generation is %d", rewinds, m.Generation)
	}
	h.wantHistory(0, 4, 4, 4, 4, 40)
}

func testLateAfterRewind(h harness) {
	h.found()
	term := h.term(0)
	h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
	deliver := func() { h.wantFenced("a late save", h.save(markAt(term, 44, checkpoint.ReasonInterval, 1))) }
	if h.Link != nil {
		deliver = h.late(markAt(term, 44, checkpoint.ReasonInterval, 1))
	}
	if _, err := h.Reopen().Rewind(h.Context(), 0, checkpointtest.Event(4), "ann", ""); err != nil {
		h.Fatalf("rewind: %v", err)
	}
	deliver()
	h.wantAt(0, checkpointtest.Event(4))
	h.wantHistory(0, 4, 40)
	h.mustSave(markAt(h.term(0), 8, checkpoint.ReasonBegin, 2))
}
