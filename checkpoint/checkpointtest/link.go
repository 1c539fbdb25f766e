package checkpointtest

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/checkpoint"
)

// A store without a Link answers at once, and none of its requests can be late or lost. For such a
// store these cases only test a repetition.

// giveUp saves a checkpoint, and gives up when sent is closed, so that the caller never learns the
// outcome.
func (h harness) giveUp(c checkpoint.Checkpoint, sent <-chan struct{}) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- h.Store.Save(ctx, []checkpoint.Checkpoint{c})[0] }()
	select {
	case <-sent:
	case err := <-result:
		h.Fatalf("the save was answered before it was sent: %v", err)
	}
	cancel()
	if err := <-result; err == nil || errors.Is(err, checkpoint.ErrFenced) {
		h.Fatalf("a save without an answer gave %v", err)
	}
}

// late saves a checkpoint whose write stays under way until deliver is called.
func (h harness) late(c checkpoint.Checkpoint) (deliver func()) {
	h.Helper()
	if h.Link == nil {
		return func() { _ = h.save(c) }
	}
	held, deliver := h.Link.Hold()
	h.giveUp(c, held)
	return deliver
}

func testLateWrite(h harness) {
	term := h.term(0)
	h.mustSave(Shared(term, Event(10)))
	deliver := h.late(Shared(term, Event(20)))
	h.mustSave(Shared(term, Event(30)))
	deliver()
	h.wantAt(0, Event(30))
	h.mustSave(Shared(term, Event(40)))
	h.wantAt(0, Event(40))
}

func testLateFirstWrite(h harness) {
	term := h.term(0)
	deliver := h.late(Shared(term, Event(20)))
	h.mustSave(Shared(term, Event(30)))
	deliver()
	h.wantAt(0, Event(30))

	// A late write that arrives before the next one is not a loss either.
	h.late(Shared(term, Event(40)))()
	h.mustSave(Shared(term, Event(35)))
	h.wantAt(0, Event(40))
	h.late(Shared(term, Event(50)))()
	h.mustSave(Shared(term, Event(60)))
	h.wantAt(0, Event(60))
}

func testLateDeposed(h harness) {
	old := h.term(0)
	h.mustSave(Shared(old, Event(10)))
	deliver := h.late(Shared(old, Event(20)))
	young := h.term(0)
	deliver()
	h.wantAt(0, Event(10))
	h.mustSave(Shared(young, Event(11)))
	h.wantAt(0, Event(11))
}

func testLostAnswer(h harness) {
	term := h.term(0)
	for i, last := range []int{10, 20} {
		c := Shared(term, Event(last))
		if h.Link == nil {
			h.mustSave(c)
		} else {
			h.giveUp(c, h.Link.Mute())
		}
		h.wantAt(0, Event(last))
		before := h.Raw(SharedKey(0))
		if i == 0 {
			h.mustSave(c)
			if after := h.Raw(SharedKey(0)); string(after) != string(before) {
				h.Errorf("the repetition wrote again: %q, was %q", after, before)
			}
		}
		h.mustSave(Shared(term, Event(last+1)))
		h.wantAt(0, Event(last+1))
	}
}

func testCut(h harness) {
	terms := h.terms(0, 1)
	h.mustSave(Shared(terms[0], Event(1)))
	if h.Link != nil {
		heal := h.Link.Cut()
		ctx, cancel := context.WithTimeout(h.Context(), 300*time.Millisecond)
		defer cancel()
		for i, err := range h.Store.Save(ctx, []checkpoint.Checkpoint{Shared(terms[0], Event(2)), Shared(terms[1], Event(2))}) {
			if err == nil || errors.Is(err, checkpoint.ErrFenced) {
				h.Errorf("checkpoint %d without a connection: %v", i, err)
			}
		}
		heal()
	}
	// The first requests may still meet the broken connection.
	for err := h.save(Shared(terms[0], Event(2))); err != nil; err = h.save(Shared(terms[0], Event(2))) {
		if h.Link == nil || errors.Is(err, checkpoint.ErrFenced) || h.Context().Err() != nil {
			h.Fatalf("save: %v", err)
		}
	}
	h.mustSave(Shared(terms[1], Event(3)))
	h.wantAt(0, Event(2))
	h.wantAt(1, Event(3))
}

func testLateExclusive(h harness) {
	h.create()
	k := checkpoint.Key{Subscriber: "gw-1"}
	claim := h.claim("gw-1", 1).Claim
	deliver := h.late(Exclusive("gw-1", claim, Event(20)))
	h.mustSave(Exclusive("gw-1", claim, Event(30)))
	deliver()
	if got := h.load(k); got.Position.Compare(Event(30)) != 0 {
		h.Errorf("the subscriber is at %s", got.Position)
	}
	deliver = h.late(Exclusive("gw-1", claim, Event(40)))
	if h.Link == nil {
		deliver = func() { h.wantFenced("a late save", h.save(Exclusive("gw-1", claim, Event(40)))) }
	}
	later := h.claim("gw-1", 2).Claim
	deliver()
	if got := h.load(k); got.Position.Compare(Event(30)) != 0 || got.Claim.Number != later.Number {
		h.Errorf("the checkpoint is %+v", got)
	}
	h.mustSave(Exclusive("gw-1", later, Event(31)))
	if got := h.load(k); got.Position.Compare(Event(31)) != 0 {
		h.Errorf("the subscriber is at %s", got.Position)
	}
}

// A process that claims again after a lost reply finds its own claim. A claim that arrives late
// does not depose a later claimant.
func testLostClaim(h harness) {
	h.create()
	if h.Link == nil {
		h.claim("gw-1", 1)
	} else {
		h.giveUpClaim("gw-1", 1, h.Link.Mute())
	}
	if c := h.claim("gw-1", 1); c.Claim.Number != 1 {
		h.Errorf("claimed as %+v", c.Claim)
	}
	deliver := func() {}
	if h.Link != nil {
		var held <-chan struct{}
		held, deliver = h.Link.Hold()
		h.giveUpClaim("gw-1", 2, held)
	}
	later := h.claim("gw-1", 3)
	deliver()
	h.mustSave(Exclusive("gw-1", later.Claim, Event(9)))
	if got := h.load(later.Key); got.Claim != later.Claim || got.Position.Compare(Event(9)) != 0 {
		h.Errorf("the checkpoint is %+v", got)
	}
}

// giveUpClaim claims a name and gives up when sent is closed.
func (h harness) giveUpClaim(subscriber string, n int, sent <-chan struct{}) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := h.Store.ClaimName(ctx, process(n), first(subscriber))
		result <- err
	}()
	select {
	case <-sent:
	case err := <-result:
		h.Fatalf("the claim was answered before it was sent: %v", err)
	}
	cancel()
	if err := <-result; err == nil || errors.Is(err, checkpoint.ErrFenced) {
		h.Fatalf("a claim without an answer gave %v", err)
	}
}
