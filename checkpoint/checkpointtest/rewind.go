package checkpointtest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

func (h harness) rewind(k checkpoint.Key, to change.Position) checkpoint.Checkpoint {
	h.Helper()
	c, err := h.Store.Rewind(h.Context(), k, to, "ann", "orders were lost downstream")
	if err != nil {
		h.Fatalf("rewind: %v", err)
	}
	return c
}

func (h harness) wantRewound(what string, err error) {
	h.Helper()
	h.wantError(what, checkpoint.ErrRewound, err)
	if errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("%s is fenced too: %v", what, err)
	}
}

// of returns a checkpoint with a generation.
func of(c checkpoint.Checkpoint, generation uint64) checkpoint.Checkpoint {
	c.Generation = generation
	return c
}

func testRewind(h harness) {
	o := h.create()
	term := h.term(7)
	h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	before := time.Now()
	got := h.rewind(SharedKey(7), Event(8))
	want := Shared(term, Event(8))
	want.Generation = 1
	want.Epoch = change.Epoch{Incarnation: o.Incarnation}
	want.At = got.At
	want.By = "ann"
	want.Reason = checkpoint.ReasonRewind
	want.Note = "orders were lost downstream"
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("rewind returned another checkpoint (-want +got):\n%s", diff)
	}
	if got.At.Before(before.Add(-time.Second)) || got.At.After(time.Now().Add(time.Second)) {
		h.Errorf("rewound at %s", got.At)
	}
	h.want(want)
	for _, n := range []int{4, 8, 12, 80} {
		h.wantRewound("a save of the generation before", h.save(noted(term, n, checkpoint.ReasonInterval, 1)))
	}
	h.wantAt(7, Event(8))
	// The term continues, with the next generation.
	if diff := cmp.Diff([]checkpoint.Checkpoint{want}, h.claimTerms([]change.Term{term})); diff != "" {
		h.Errorf("the claim found another checkpoint (-want +got):\n%s", diff)
	}
	h.mustSave(of(noted(term, 12, checkpoint.ReasonBegin, 2), 1))
	if c := h.load(SharedKey(7)); c.Generation != 1 || c.Position.Compare(Event(12)) != 0 {
		h.Errorf("the checkpoint after the rewind is %+v", c)
	}
	h.wantHistory(7, 12, 8, 40)
	young := h.term(7)
	h.wantFenced("a save of the term before", h.save(of(noted(term, 16, checkpoint.ReasonInterval, 3), 1)))
	h.wantRewound("a save of the next term, of the generation before", h.save(noted(young, 16, checkpoint.ReasonInterval, 3)))
	h.mustSave(of(noted(young, 16, checkpoint.ReasonBegin, 3), 1))
}

func testRewindExclusive(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	c := Exclusive("gw-1", claim, Event(20))
	c.Positions = map[change.Partition]change.Position{3: Event(50), 4: Event(32)}
	c.Snapshots = snapshots(3)
	h.mustSave(c)
	if _, err := h.Store.Rewind(h.Context(), c.Key, Event(51), "ann", ""); !errors.Is(err, checkpoint.ErrForward) {
		h.Errorf("a rewind past all of it gave %v", err)
	}
	got := h.rewind(c.Key, Event(32))
	if got.Position.Compare(Event(20)) != 0 || got.Claim != claim || got.Generation != 1 {
		h.Errorf("rewound to %+v", got)
	}
	if diff := cmp.Diff(map[change.Partition]change.Position{3: Event(32), 4: Event(32)}, got.Positions); diff != "" {
		h.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(c.Snapshots, got.Snapshots); diff != "" {
		h.Errorf("what was still to be read is not any more (-want +got):\n%s", diff)
	}
	h.want(got)
	h.wantRewound("a save of the generation before", h.save(c))
	// The claim continues, also at another node.
	again := h.claim("gw-1", 1)
	if again.Generation != 1 || again.Claim.Number != claim.Number {
		h.Errorf("claimed as %+v", again)
	}
	h.mustSave(of(Exclusive("gw-1", claim, Event(33)), 1))
	later := h.claim("gw-1", 2)
	if later.Generation != 1 || later.Position.Compare(Event(33)) != 0 {
		h.Errorf("claimed as %+v", later)
	}
	h.wantFenced("a save of the process before, of the generation before", h.save(c))
	h.wantRewound("a save of the generation before", h.save(Exclusive("gw-1", later.Claim, Event(60))))
}

func testRewindNone(h harness) {
	for _, k := range []checkpoint.Key{SharedKey(0), {Subscriber: "gw-1"}} {
		_, err := h.Store.Rewind(h.Context(), k, Event(1), "ann", "")
		h.wantError("a rewind without an origin", checkpoint.ErrNoOrigin, err)
	}
	h.create()
	for _, k := range []checkpoint.Key{SharedKey(0), {Subscriber: "gw-1"}} {
		_, err := h.Store.Rewind(h.Context(), k, Event(1), "ann", "")
		h.wantError("a rewind of nothing", checkpoint.ErrNone, err)
		h.wantNone(k)
	}
}

func testRewindForward(h harness) {
	h.create()
	term := h.term(0)
	h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	before := h.Raw(SharedKey(0))
	for name, to := range map[string]change.Position{
		"the next event": Event(41), "a later time": change.At(Event(44).Time), "nowhere": {},
	} {
		c, err := h.Store.Rewind(h.Context(), SharedKey(0), to, "ann", "")
		if err == nil || !to.IsZero() && !errors.Is(err, checkpoint.ErrForward) {
			h.Errorf("a rewind to %s gave %v, %v", name, c, err)
		}
	}
	if after := h.Raw(SharedKey(0)); !slices.Equal(before, after) {
		h.Errorf("the checkpoint changed from %q to %q", before, after)
	}
	h.mustSave(noted(term, 44, checkpoint.ReasonInterval, 1))
	// A rewind to the present position is allowed: changes in flight are redelivered.
	if c := h.rewind(SharedKey(0), Event(44)); c.Generation != 1 {
		h.Errorf("rewound to %+v", c)
	}
	h.wantRewound("a save of the generation before", h.save(noted(term, 48, checkpoint.ReasonInterval, 2)))
}

func testRewindOne(h harness) {
	h.create()
	terms := h.terms(0, 1, 2)
	for _, term := range terms {
		h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	}
	h.rewind(SharedKey(1), Event(4))
	var saved []checkpoint.Checkpoint
	for _, term := range terms {
		saved = append(saved, noted(term, 44, checkpoint.ReasonInterval, 1))
	}
	results := h.Store.Save(h.Context(), saved)
	if results[0] != nil || results[2] != nil {
		h.Errorf("the others were not saved: %v", results)
	}
	h.wantRewound("a save of the generation before", results[1])
	h.wantAt(0, Event(44))
	h.wantAt(1, Event(4))
	h.mustSave(of(noted(terms[1], 8, checkpoint.ReasonBegin, 2), 1))
	h.mustSave(noted(terms[0], 48, checkpoint.ReasonInterval, 3))
}

func testRewindTwice(h harness) {
	h.create()
	h.mustSave(noted(h.term(0), 40, checkpoint.ReasonBegin, 0))
	for i, n := range []int{32, 24, 16} {
		if c := h.rewind(SharedKey(0), Event(n)); c.Generation != uint64(i+1) {
			h.Errorf("rewind %d gave generation %d", i, c.Generation)
		}
	}
	h.wantHistory(0, 16, 24, 32, 40)
	terms := h.Begin(0)
	if claimed := h.claimTerms(terms); claimed[0].Generation != 3 {
		h.Errorf("the claim found generation %d", claimed[0].Generation)
	}
	h.mustSave(of(noted(terms[0], 20, checkpoint.ReasonBegin, 1), 3))
	if _, err := h.Reopen().Rewind(h.Context(), SharedKey(0), Event(8), "bob", ""); err != nil {
		h.Fatalf("rewind by another: %v", err)
	}
	if c := h.load(SharedKey(0)); c.Generation != 4 || c.By != "bob" {
		h.Errorf("the checkpoint is %+v", c)
	}
}

func testLowerGeneration(h harness) {
	h.create()
	h.mustSave(noted(h.term(0), 40, checkpoint.ReasonBegin, 0))
	h.rewind(SharedKey(0), Event(8))
	h.rewind(SharedKey(0), Event(4))
	term := h.term(0)
	lower := of(noted(term, 12, checkpoint.ReasonInterval, 1), 1)
	h.wantRewound("a save of generation 1 of 2", h.save(lower))
	h.wantRewound("the same by a store that remembers nothing", h.saveTo(h.Reopen(), lower))
	h.wantAt(0, Event(4))
	h.mustSave(of(lower, 2))
	h.wantAt(0, Event(12))
}

// A generation higher than the store's means that a backup from before a rewind was restored. The
// position that the operator has set counts, not the subscriber's earlier progress.
func testHigherGeneration(h harness) {
	term := h.term(0)
	h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	h.mustSave(of(noted(term, 12, checkpoint.ReasonInterval, 1), 5))
	if got := h.load(SharedKey(0)); got.Generation != 5 || got.Position.Compare(Event(12)) != 0 {
		h.Errorf("the checkpoint is %+v", got)
	}
	h.mustSave(of(noted(term, 12, checkpoint.ReasonInterval, 1), 6)) // it has not moved, but must notice the next rewind
	if got := h.load(SharedKey(0)); got.Generation != 6 {
		h.Errorf("the checkpoint is %+v", got)
	}
	h.wantRewound("a save of the generation before", h.save(of(noted(term, 16, checkpoint.ReasonInterval, 2), 5)))
}

func testRewindRace(h harness) {
	h.create()
	other := h.Reopen()
	for round := range 12 {
		p := change.Partition(round)
		term := h.term(p)
		h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
		var wg sync.WaitGroup
		wg.Go(func() {
			rewound := false
			for n := range 8 {
				err := h.save(noted(term, 44+4*n, checkpoint.ReasonInterval, n))
				if err != nil && !errors.Is(err, checkpoint.ErrRewound) {
					h.Errorf("save %d: %v", n, err)
				}
				if err == nil && rewound {
					h.Errorf("save %d passed after one was refused", n)
				}
				rewound = err != nil
			}
		})
		c, err := other.Rewind(h.Context(), SharedKey(p), Event(4), "ann", "")
		wg.Wait()
		if err != nil || c.Generation != 1 {
			h.Fatalf("rewind: %+v, %v", c, err)
		}
		h.want(c)
		if history := h.history(SharedKey(p)); history[0].Reason != checkpoint.ReasonRewind {
			h.Errorf("round %d: the newest entry is %+v", round, history[0])
		}
	}
}

func testRewindsRace(h harness) {
	h.create()
	h.mustSave(noted(h.term(0), 40, checkpoint.ReasonBegin, 0))
	const rewinds = 4
	var wg sync.WaitGroup
	for i := range rewinds {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			if _, err := store.Rewind(h.Context(), SharedKey(0), Event(4), "ann", ""); err != nil {
				h.Errorf("rewind %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if c := h.load(SharedKey(0)); c.Generation != rewinds {
		h.Errorf("after %d rewinds the generation is %d", rewinds, c.Generation)
	}
	h.wantHistory(0, 4, 4, 4, 4, 40)
}

func testLateAfterRewind(h harness) {
	h.create()
	term := h.term(0)
	h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	deliver := h.late(noted(term, 44, checkpoint.ReasonInterval, 1))
	if h.Link == nil {
		deliver = func() { h.wantRewound("a late save", h.save(noted(term, 44, checkpoint.ReasonInterval, 1))) }
	}
	if _, err := h.Reopen().Rewind(h.Context(), SharedKey(0), Event(4), "ann", ""); err != nil {
		h.Fatalf("rewind: %v", err)
	}
	deliver()
	h.wantAt(0, Event(4))
	h.wantHistory(0, 4, 40)
	h.mustSave(of(noted(h.term(0), 8, checkpoint.ReasonBegin, 2), 1))
}

func testPut(h harness) {
	claim := process(9)
	claim.Number = 7
	imported := Exclusive("gw-1", claim, Event(60))
	imported.Positions = at(3, Event(70))
	imported.Reason = checkpoint.ReasonImport
	imported.Note = "from the archive"
	imported.Generation = 2
	h.wantError("an import without an origin", checkpoint.ErrNoOrigin, h.Store.Put(h.Context(), imported))
	o := h.create()
	put := func(c checkpoint.Checkpoint) {
		h.Helper()
		if err := h.Store.Put(h.Context(), c); err != nil {
			h.Fatalf("put: %v", err)
		}
	}
	put(imported)
	h.want(imported)
	h.wantEntries(imported.Key, 60)
	// An import over an existing checkpoint gets the next generation, whatever its own is, forward
	// and back, and the claim stays.
	mine := h.claim("gw-1", 10)
	imported.Position = Event(10)
	put(imported)
	want := imported
	want.Claim = mine.Claim
	want.Generation = 3
	h.want(want)
	h.wantRewound("a save of the generation before", h.save(of(Exclusive("gw-1", mine.Claim, Event(80)), 2)))
	h.mustSave(of(Exclusive("gw-1", mine.Claim, Event(80)), 3))

	// An epoch from another cluster does not fence the owner.
	shared := Shared(change.Term{Partition: 5, Epoch: change.Epoch{Incarnation: 99, Revision: 1 << 40}}, Event(20))
	shared.Reason = checkpoint.ReasonImport
	put(shared)
	want = shared
	want.Epoch = change.Epoch{Incarnation: o.Incarnation}
	h.want(want)
	term := h.term(5)
	h.mustSave(Shared(term, Event(24)))
	shared.Position = Event(8)
	put(shared)
	h.wantRewound("a save of the generation before", h.save(Shared(term, Event(28))))
	h.mustSave(of(Shared(term, Event(12)), 1))
	h.wantAt(5, Event(12))
	shared.Partitions--
	if err := h.Store.Put(h.Context(), shared); err == nil {
		h.Error("a shared checkpoint of another number of partitions was taken")
	}
	shared.Position = change.Position{}
	shared.Partitions = Partitions
	if err := h.Store.Put(h.Context(), shared); err == nil {
		h.Error("a checkpoint without a position was taken")
	}
}
