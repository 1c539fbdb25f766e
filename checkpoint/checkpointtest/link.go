package checkpointtest

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/checkpoint"
)

// A store without a Link answers at once, and nothing of it can be late or lost: of these cases only what is left of them
// is tried, a repetition.

// giveUp saves a mark of which the caller never learns what became of it: it gives up when sent is closed.
func (h harness) giveUp(m checkpoint.Mark, sent <-chan struct{}) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- h.Store.Save(ctx, []checkpoint.Mark{m})[0] }()
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

// late saves a mark whose write stays underway until deliver is called.
func (h harness) late(m checkpoint.Mark) (deliver func()) {
	h.Helper()
	if h.Link == nil {
		return func() { _ = h.save(m) }
	}
	held, deliver := h.Link.Hold()
	h.giveUp(m, held)
	return deliver
}

func testLateWrite(h harness) {
	term := h.term(0)
	h.mustSave(MarkAt(term, Event(10)))
	deliver := h.late(MarkAt(term, Event(20)))
	h.mustSave(MarkAt(term, Event(30)))
	deliver()
	h.wantAt(0, Event(30))
	h.mustSave(MarkAt(term, Event(40)))
	h.wantAt(0, Event(40))
}

func testLateFirstWrite(h harness) {
	term := h.term(0)
	deliver := h.late(MarkAt(term, Event(20)))
	h.mustSave(MarkAt(term, Event(30)))
	deliver()
	h.wantAt(0, Event(30))

	// One that arrives before the next is no loss either.
	h.late(MarkAt(term, Event(40)))()
	h.mustSave(MarkAt(term, Event(35)))
	h.wantAt(0, Event(40))
	h.late(MarkAt(term, Event(50)))()
	h.mustSave(MarkAt(term, Event(60)))
	h.wantAt(0, Event(60))
}

func testLateDeposed(h harness) {
	old := h.term(0)
	h.mustSave(MarkAt(old, Event(10)))
	deliver := h.late(MarkAt(old, Event(20)))
	young := h.term(0)
	deliver()
	h.wantAt(0, Event(10))
	h.mustSave(MarkAt(young, Event(11)))
	h.wantAt(0, Event(11))
}

func testLostAnswer(h harness) {
	term := h.term(0)
	for i, last := range []int{10, 20} {
		m := MarkAt(term, Event(last))
		if h.Link == nil {
			h.mustSave(m)
		} else {
			h.giveUp(m, h.Link.Mute())
		}
		h.wantAt(0, Event(last))
		before := h.Raw(0)
		if i == 0 {
			h.mustSave(m)
			if after := h.Raw(0); string(after) != string(before) {
				h.Errorf("the repetition wrote again: %q, was %q", after, before)
			}
		}
		h.mustSave(MarkAt(term, Event(last+1)))
		h.wantAt(0, Event(last+1))
	}
}

func testCut(h harness) {
	terms := h.terms(0, 1)
	h.mustSave(MarkAt(terms[0], Event(1)))
	if h.Link != nil {
		heal := h.Link.Cut()
		ctx, cancel := context.WithTimeout(h.Context(), 300*time.Millisecond)
		defer cancel()
		for i, err := range h.Store.Save(ctx, []checkpoint.Mark{MarkAt(terms[0], Event(2)), MarkAt(terms[1], Event(2))}) {
			if err == nil || errors.Is(err, checkpoint.ErrFenced) {
				h.Errorf("mark %d without a connection: %v", i, err)
			}
		}
		heal()
	}
	// The first requests may still meet the broken connection.
	for err := h.save(MarkAt(terms[0], Event(2))); err != nil; err = h.save(MarkAt(terms[0], Event(2))) {
		if h.Link == nil || errors.Is(err, checkpoint.ErrFenced) || h.Context().Err() != nil {
			h.Fatalf("save: %v", err)
		}
	}
	h.mustSave(MarkAt(terms[1], Event(3)))
	h.wantAt(0, Event(2))
	h.wantAt(1, Event(3))
}
