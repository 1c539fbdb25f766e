package wiring

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/notice"
)

// failing is a store that answers every save with the same results.
type failing struct {
	backend.Store
	results []error
	calls   int
}

func (f *failing) Save(context.Context, []checkpoint.Checkpoint) []error {
	f.calls++
	return f.results
}

func (f *failing) AddGap(context.Context, checkpoint.Gap) error {
	f.calls++
	return errors.Join(f.results...)
}

func TestStoreThatFailsIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := notice.NewBoard(notice.Config{})
		down := &failing{results: slices.Repeat([]error{errors.New("away")}, 2)}
		guarded := guardedStore{Store: down, breaker: breaker.NewPanel(breaker.Config{Board: board}).Breaker("checkpoints", nil)}
		save := func() []error { return guarded.Save(t.Context(), make([]checkpoint.Checkpoint, 2)) }
		for range 9 {
			for _, err := range save() {
				if err == nil {
					t.Fatal("saved")
				}
			}
		}
		if down.calls != 5 || !errors.Is(save()[1], breaker.ErrOpen) || !errors.Is(guarded.AddGap(t.Context(), checkpoint.Gap{}), breaker.ErrOpen) {
			t.Errorf("%d calls", down.calls)
		}
		time.Sleep(31 * time.Second)
		down.results = []error{nil, checkpoint.ErrFenced}
		if results := save(); results[0] != nil || !errors.Is(results[1], checkpoint.ErrFenced) || down.calls != 6 {
			t.Errorf("after the pause: %v, %d calls", results, down.calls)
		}
		var kinds []string
		notices, _ := board.Since(0)
		for _, n := range notices {
			kinds = append(kinds, n.Kind)
		}
		if want := []string{"breaker_opened", "breaker_closed"}; !slices.Equal(kinds, want) {
			t.Errorf("notices %v, want %v", kinds, want)
		}
	})
}

// Only failures of the store open its breaker: neither what is wrong with one checkpoint, nor what
// a caller has done, in a round or by itself.
func TestOnlyTheStoresFailuresOpenItsBreaker(t *testing.T) {
	corrupt := fault.New(fault.CheckpointCorrupt, errors.New("checkpoints/x"))
	for name, c := range map[string]struct {
		results []error
		opens   bool
	}{
		"a checkpoint that cannot be encoded": {[]error{checkpoint.ErrUnsavable}, false},
		"a corrupt one":                       {[]error{corrupt, corrupt}, false},
		"callers that are fenced":             {[]error{checkpoint.ErrFenced, context.Canceled}, false},
		"the store":                           {[]error{errors.New("away")}, true},
		"the store beside a corrupt one":      {[]error{corrupt, errors.New("away")}, true},
		"the store for some":                  {[]error{nil, errors.New("away")}, false},
	} {
		store := &failing{results: c.results}
		s := &Service{breakers: breaker.NewPanel(breaker.Config{}), backends: backends{store: store}}
		guarded := s.guardStore()
		for range 10 {
			guarded.Save(t.Context(), make([]checkpoint.Checkpoint, len(c.results)))
		}
		if opened := store.calls < 10; opened != c.opens {
			t.Errorf("%s: %d of 10 saves reached it", name, store.calls)
		}
	}
}

// A node that stops while its store is left alone saves its last checkpoints all the same, where
// the store has come back.
func TestLastCheckpointsAreSavedThoughTheStoreIsLeftAlone(t *testing.T) {
	for _, reason := range []checkpoint.Reason{checkpoint.ReasonFinal, checkpoint.ReasonHandoff} {
		down := &failing{results: []error{errors.New("away")}}
		guarded := guardedStore{Store: down, breaker: breaker.NewPanel(breaker.Config{}).Breaker("checkpoints", nil)}
		for range 6 {
			guarded.Save(t.Context(), make([]checkpoint.Checkpoint, 1))
		}
		down.results = []error{nil}
		if err := guarded.Save(t.Context(), make([]checkpoint.Checkpoint, 1))[0]; !errors.Is(err, breaker.ErrOpen) {
			t.Errorf("a checkpoint as any: %v", err)
		}
		if err := guarded.Save(t.Context(), []checkpoint.Checkpoint{{Reason: reason}})[0]; err != nil {
			t.Errorf("a last checkpoint (%s): %v", reason, err)
		}
	}
}

// A store of which one checkpoint is refused answers: its breaker stays closed.
func TestStoreThatRefusesSomeCheckpointsIsNotAway(t *testing.T) {
	partly := &failing{results: []error{errors.New("corrupt"), nil}}
	guarded := guardedStore{Store: partly, breaker: breaker.NewPanel(breaker.Config{}).Breaker("checkpoints", nil)}
	for range 20 {
		guarded.Save(t.Context(), make([]checkpoint.Checkpoint, 2))
	}
	if partly.calls != 20 {
		t.Errorf("%d calls", partly.calls)
	}
}
