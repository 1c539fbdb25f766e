package rewindtest

import (
	"context"
	"errors"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// A Repartitioner is a store whose partitions can be counted anew.
type Repartitioner interface {
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// TestRepartition runs the suite of stores whose partitions can be counted anew. Open is as for [TestStore]; the stores must be
// Repartitioners. End ends every claim of a harness's.
func TestRepartition(t *testing.T, open func(t *testing.T) checkpointtest.Harness, end func(h checkpointtest.Harness)) {
	t.Helper()
	for name, run := range map[string]func(h recounted){
		"marks go, histories and the gap log stay":              testRecount,
		"every epoch from before is fenced":                     testRecountFences,
		"no mark is moved forward":                              testRecountForward,
		"where the origin has changed nothing is counted anew":  testRecountMoved,
		"what was counted by another number says so afterwards": testRecountOf,
	} {
		t.Run(name, func(t *testing.T) {
			h := harness{open(t), t}
			run(recounted{h, func() { end(h.Harness) }})
		})
	}
}

type recounted struct {
	harness

	end func()
}

// recount counts anew from a position on, by as many.
func (h recounted) recount(last checkpoint.Origin, from change.Position) (checkpoint.Origin, error) {
	h.Helper()
	o := next(last, "ann")
	o.Start, o.Source = from.Time, last.Source
	return h.Store.(Repartitioner).Repartition(h.Context(), last, o)
}

func testRecount(h recounted) {
	first := h.found()
	terms, _ := h.terms(0, 1, 2)
	h.mustSave(markAt(terms[0], 40, checkpoint.ReasonBegin, 0))
	h.mustSave(markAt(terms[0], 44, checkpoint.ReasonFinal, 1))
	h.mustSave(markAt(terms[1], 44, checkpoint.ReasonBegin, 1))
	lost := checkpoint.Gap{Partition: 1, From: checkpointtest.Event(4), To: checkpointtest.Event(8), Reason: "history_lost", Epoch: terms[1].Epoch, By: "n"}
	if err := h.Store.AddGap(h.Context(), lost); err != nil {
		h.Fatal(err)
	}
	h.end()
	second, err := h.recount(first, checkpointtest.Event(40))
	if err != nil {
		h.Fatal(err)
	}
	for range 2 { // an answer that got lost
		if stands, err := h.Store.(Repartitioner).Repartition(h.Context(), first, second); err != nil || !stands.Equal(second) {
			h.Errorf("again: %+v, %v", stands, err)
		}
	}
	other := h.Reopen()
	if stands, err := other.Origin(h.Context()); err != nil || !stands.Equal(second) || stands.Incarnation != first.Incarnation+1 {
		h.Errorf("%+v, %v", stands, err)
	}
	if marks, err := other.List(h.Context()); err != nil || len(marks) != 0 {
		h.Errorf("%d marks stand, %v", len(marks), err)
	}
	if gaps, err := other.Gaps(h.Context()); err != nil || len(gaps) != 1 || gaps[0].Of != 0 {
		h.Errorf("%+v, %v", gaps, err)
	}
	h.wantHistory(0, 44, 40)
	young, marks := h.terms(0, 1)
	if !marks[0].Position.IsZero() || !marks[1].Position.IsZero() || young[0].Epoch.Incarnation != 2 {
		h.Errorf("claimed %v and found %v", young, marks)
	}
	h.mustSave(markAt(young[0], 42, checkpoint.ReasonBegin, 2)) // the first of a new count takes the first place
	h.wantHistory(0, 42, 44)
}

func testRecountFences(h recounted) {
	first := h.found()
	old, _ := h.terms(0, 1)
	h.mustSave(markAt(old[0], 40, checkpoint.ReasonBegin, 0))
	h.end()
	if _, err := h.recount(first, checkpointtest.Event(4)); err != nil {
		h.Fatal(err)
	}
	for p, term := range old {
		h.wantFenced("a save with an old epoch", h.save(markAt(term, 44+p, checkpoint.ReasonInterval, 1)))
	}
	if _, err := h.Reopen().Claim(h.Context(), old); !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("the old epochs claim: %v", err)
	}
}

func testRecountForward(h recounted) {
	first := h.found()
	terms, _ := h.terms(0, 1)
	h.mustSave(markAt(terms[0], 40, checkpoint.ReasonBegin, 0))
	h.mustSave(markAt(terms[1], 4, checkpoint.ReasonBegin, 0))
	h.end()
	if _, err := h.recount(first, checkpointtest.Event(40)); !errors.Is(err, checkpoint.ErrOriginMoved) {
		h.Errorf("a mark stands before where all would begin: %v", err)
	}
	h.wantAt(0, checkpointtest.Event(40))
	if stands, err := h.Reopen().Origin(h.Context()); err != nil || !stands.Equal(first) {
		h.Errorf("%+v, %v", stands, err)
	}
}

func testRecountMoved(h recounted) {
	first := h.found()
	other := first
	other.Source = "rs1/0"
	if _, err := h.recount(other, checkpointtest.Event(4)); !errors.Is(err, checkpoint.ErrOriginMoved) {
		h.Errorf("over another origin: %v", err)
	}
	if stands, err := h.Reopen().Origin(h.Context()); err != nil || !stands.Equal(first) {
		h.Errorf("%+v, %v", stands, err)
	}
}

func testRecountOf(h recounted) {
	first := h.found()
	old := checkpoint.Gap{Partition: 1, Of: 16, From: checkpointtest.Event(4), To: checkpointtest.Event(8), Reason: "history_lost", By: "n"}
	if err := h.Store.AddGap(h.Context(), old); err != nil {
		h.Fatal(err)
	}
	if gaps, err := h.Reopen().Gaps(h.Context()); err != nil || len(gaps) != 1 || gaps[0].Of != 16 {
		h.Errorf("%+v, %v", gaps, err)
	}
	// The same loss by the present count is another one: its documents have not been read again.
	again := old
	again.Of = 0
	if err := h.Store.AddGap(h.Context(), again); err != nil {
		h.Fatal(err)
	}
	if gaps, err := h.Reopen().Gaps(h.Context()); err != nil || len(gaps) != 1 || gaps[0].Of != 0 {
		h.Errorf("%+v, %v", gaps, err)
	}
	if stands, err := h.Store.Origin(h.Context()); err != nil || !stands.Equal(first) {
		h.Errorf("%+v, %v", stands, err)
	}
}
