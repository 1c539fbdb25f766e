package checkpointtest

import (
	"context"
	"errors"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A Repartitioner is a store that can change its number of partitions.
type Repartitioner interface {
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// TestRepartition runs the suite of stores that can change their number of partitions. Open is as
// for [TestStore]; the stores must be Repartitioners. End ends every claim of a harness.
func TestRepartition(t *testing.T, open func(t *testing.T) Harness, end func(h Harness)) {
	t.Helper()
	for name, run := range map[string]func(h recounted){
		"shared checkpoints go, everything else stays":         testRecount,
		"every epoch from before is fenced":                    testRecountFences,
		"no shared checkpoint is moved forward":                testRecountForward,
		"where the origin has changed nothing is counted anew": testRecountMoved,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			run(recounted{harness{h, t}, func() { end(h) }})
		})
	}
}

type recounted struct {
	harness

	end func()
}

// recount changes the number of partitions, from a position on.
func (h recounted) recount(last checkpoint.Origin, from change.Position) (checkpoint.Origin, error) {
	h.Helper()
	o := next(last, "ann")
	o.Start = from.Time
	o.Source = last.Source
	return h.Store.(Repartitioner).Repartition(h.Context(), last, o)
}

func testRecount(h recounted) {
	first := h.create()
	terms := h.terms(0, 1, 2)
	h.mustSave(noted(terms[0], 40, checkpoint.ReasonBegin, 0))
	h.mustSave(noted(terms[0], 44, checkpoint.ReasonFinal, 1))
	h.mustSave(noted(terms[1], 44, checkpoint.ReasonBegin, 1))
	mine := h.claim("gw-1", 1)
	h.addGap(gapAt(4, 0))
	h.end()
	second, err := h.recount(first, Event(40))
	if err != nil {
		h.Fatal(err)
	}
	for range 2 { // the second call is the retry after a lost reply
		if stands, err := h.Store.(Repartitioner).Repartition(h.Context(), first, second); err != nil || !stands.Equal(second) {
			h.Errorf("again: %+v, %v", stands, err)
		}
	}
	if stands, err := h.Reopen().Origin(h.Context()); err != nil || !stands.Equal(second) || stands.Incarnation != first.Incarnation+1 {
		h.Errorf("%+v, %v", stands, err)
	}
	if all, err := h.Reopen().List(h.Context()); err != nil || len(all) != 1 || all[0].Key != mine.Key {
		h.Errorf("the checkpoints are %v, %v", all, err)
	}
	h.wantGaps(gapAt(4, 0))
	h.wantHistory(0, 44, 40)
	h.want(mine)
	young := h.Begin(0, 1)
	if claimed := h.claimTerms(young); !claimed[0].Position.IsZero() || !claimed[1].Position.IsZero() || young[0].Epoch.Incarnation != 2 {
		h.Errorf("claimed %v and found %v", young, claimed)
	}
	h.mustSave(noted(young[0], 42, checkpoint.ReasonBegin, 2)) // the first entry of the new origin takes the first slot
	h.wantHistory(0, 42, 44)
}

func testRecountFences(h recounted) {
	first := h.create()
	old := h.terms(0, 1)
	h.mustSave(noted(old[0], 40, checkpoint.ReasonBegin, 0))
	h.end()
	if _, err := h.recount(first, Event(40)); err != nil {
		h.Fatal(err)
	}
	for p, term := range old {
		h.wantFenced("a save with an epoch from before", h.save(noted(term, 44+p, checkpoint.ReasonInterval, 1)))
	}
	_, err := h.Reopen().ClaimTerms(h.Context(), Subscriber, old)
	h.wantFenced("a claim with epochs from before", err)
}

func testRecountForward(h recounted) {
	first := h.create()
	terms := h.terms(0, 1)
	h.mustSave(noted(terms[0], 40, checkpoint.ReasonBegin, 0))
	h.mustSave(noted(terms[1], 4, checkpoint.ReasonBegin, 0))
	h.end()
	if _, err := h.recount(first, Event(40)); !errors.Is(err, checkpoint.ErrOriginMoved) {
		h.Errorf("a checkpoint is earlier than where all would begin: %v", err)
	}
	h.wantAt(0, Event(40))
	if stands, err := h.Reopen().Origin(h.Context()); err != nil || !stands.Equal(first) {
		h.Errorf("%+v, %v", stands, err)
	}
}

func testRecountMoved(h recounted) {
	first := h.create()
	other := first
	other.Source = "rs1/0"
	if _, err := h.recount(other, Event(4)); !errors.Is(err, checkpoint.ErrOriginMoved) {
		h.Errorf("over another origin: %v", err)
	}
	if stands, err := h.Reopen().Origin(h.Context()); err != nil || !stands.Equal(first) {
		h.Errorf("%+v, %v", stands, err)
	}
}
