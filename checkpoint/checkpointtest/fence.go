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
	h.mustSave(Shared(old, Event(1)))
	young := h.term(0)
	before := h.Raw(SharedKey(0))
	for _, position := range []change.Position{Event(0), Event(1), Event(2)} {
		h.wantFenced("a save with the old epoch", h.save(Shared(old, position)))
	}
	h.wantFenced("a save with the old epoch by a store that remembers nothing", h.saveTo(h.Reopen(), Shared(old, Event(2))))
	if after := h.Raw(SharedKey(0)); !slices.Equal(before, after) {
		h.Errorf("the checkpoint changed from %q to %q", before, after)
	}
	h.mustSave(Shared(young, Event(2)))
	h.wantAt(0, Event(2))
}

func testFencedAmongMany(h harness) {
	terms := h.terms(all()...)
	const deposed = 130
	h.term(deposed)
	saved := make([]checkpoint.Checkpoint, len(terms))
	for i, term := range terms {
		saved[i] = Shared(term, Event(i+1))
	}
	old := h.claim("gw-1", 1)
	saved = append(saved, Exclusive("gw-1", old.Claim, Event(5)), Exclusive("gw-2", h.claim("gw-2", 1).Claim, Event(5)))
	h.claim("gw-1", 2)
	for i, err := range h.Store.Save(h.Context(), saved) {
		if i == deposed || i == len(terms) {
			h.wantFenced("the deposed owner's save", err)
		} else if err != nil {
			h.Errorf("checkpoint %d: %v", i, err)
		}
	}
	stored, err := h.Store.Load(h.Context(), Subscriber)
	if err != nil || len(stored) != len(terms)-1 {
		h.Errorf("%d checkpoints are stored, %v", len(stored), err)
	}
}

func testEpochsRace(h harness) {
	const saves, lead = 30, 1000
	old := h.term(0)
	other := h.Reopen()
	var wg sync.WaitGroup
	wg.Go(func() {
		fenced := false
		for n := range saves {
			err := h.save(Shared(old, Event(n+1)))
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
	if _, err := other.ClaimTerms(h.Context(), Subscriber, young); err != nil {
		h.Fatalf("claim: %v", err)
	}
	for n := range saves {
		if err := h.saveTo(other, Shared(young[0], Event(lead+n))); err != nil {
			h.Errorf("save %d of the higher epoch: %v", n, err)
		}
	}
	wg.Wait()
	if c := h.load(SharedKey(0)); c.Epoch != young[0].Epoch || c.Position.Compare(Event(lead+saves-1)) != 0 {
		h.Errorf("the checkpoint is of epoch %s at %s; want %s at %s", c.Epoch, c.Position, young[0].Epoch, Event(lead+saves-1))
	}
}

func testClaimTerms(h harness) {
	first := h.terms(5, 9)
	h.mustSave(Shared(first[1], Event(3)))
	terms := h.Begin(4, 9, 5)
	for range 2 { // again after a lost reply
		claimed := h.claimTerms(terms)
		if !claimed[0].Position.IsZero() || claimed[1].Position.Compare(Event(3)) != 0 || !claimed[2].Position.IsZero() {
			h.Errorf("claimed %v", claimed)
		}
		if claimed[1].Epoch != first[1].Epoch || claimed[0].Key != SharedKey(4) || claimed[1].Key != SharedKey(9) {
			h.Errorf("the checkpoints found are %v", claimed)
		}
	}
	h.claimTerms(nil)
	if many := h.claimTerms(h.Begin(all()...)); many[9].Position.IsZero() {
		h.Errorf("claimed %v", many[9])
	}
}

func testClaimTermsFenced(h harness) {
	old := h.terms(0, 1)
	h.mustSave(Shared(old[0], Event(1)))
	young := h.terms(0)
	for name, store := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		_, err := store.ClaimTerms(h.Context(), Subscriber, old)
		h.wantFenced(name+" store's claim with the old epoch", err)
	}
	h.mustSave(Shared(young[0], Event(2)))
	h.mustSave(Shared(old[1], Event(2)))
	h.wantFenced("save with the old epoch", h.save(Shared(old[0], Event(3))))
}

// Shared subscribers have checkpoints of their own under one term.
func testSharedSubscribers(h harness) {
	term := h.term(3)
	if _, err := h.Store.ClaimTerms(h.Context(), "sink", []change.Term{term}); err != nil {
		h.Fatalf("claim: %v", err)
	}
	h.mustSave(Shared(term, Event(9)))
	sink := Shared(term, Event(4))
	sink.Subscriber = "sink"
	h.mustSave(sink)
	h.wantAt(3, Event(9))
	h.want(sink)
	if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.want(sink)
}
