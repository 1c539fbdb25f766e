package checkpoint_test

import (
	"context"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// A walker is a subscriber that goes on.
type walker struct{ reader }

// A busy store is one during whose writing to the gap log something happens.
type busy struct {
	*checkpointtest.Memory

	meanwhile func() // once
	saved     func(checkpoint.Checkpoint)
}

func (b *busy) AddGap(ctx context.Context, g checkpoint.Gap) error {
	if f := b.meanwhile; f != nil {
		b.meanwhile = nil
		f()
	}
	return b.Memory.AddGap(ctx, g)
}

func (b *busy) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	for _, c := range all {
		b.saved(c)
	}
	return b.Memory.Save(ctx, all)
}

// A loss that is found, told and acknowledged while an earlier one is written into the gap log is
// there before a checkpoint passes it, too.
func TestLossDuringASaveIsInTheGapLogBeforeTheCheckpoint(t *testing.T) {
	at := func(seconds uint32) change.Position { return change.At(change.Timestamp{T: seconds, I: 1}) }
	store := &busy{Memory: checkpointtest.NewMemory(4)}
	first := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "x"}, Position: at(1), Partitions: 4, Reason: checkpoint.ReasonBegin}
	claimed, err := store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now()}, first)
	if err != nil {
		t.Fatal(err)
	}
	w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4}, store, store)
	subscriber := &walker{reader{claimed, at(5)}}
	w.Keep(subscriber, claimed)
	w.Lost(checkpoint.Gap{From: at(2), To: at(3), Reason: "first", Found: time.Now()})
	store.meanwhile = func() {
		w.Lost(checkpoint.Gap{From: at(10), To: at(12), Reason: "second", Found: time.Now()})
		subscriber.at = at(20)
	}
	store.saved = func(c checkpoint.Checkpoint) {
		gaps, err := store.Gaps(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Position.After(at(10)) && len(gaps) < 2 {
			t.Errorf("a checkpoint at %s, and in the gap log is %+v", c.Position, gaps)
		}
	}
	for range 2 {
		if err := w.Flush(t.Context(), checkpoint.ReasonFinal); err != nil {
			t.Fatal(err)
		}
	}
	if saved, err := store.Load(t.Context(), "x"); err != nil || saved[0].Position.Compare(at(20)) != 0 {
		t.Errorf("%+v, %v", saved, err)
	}
}

// While the gap log cannot be written, losses are kept without being lost: beyond so many they are
// joined.
func TestLossesThatCannotBeRecordedAreJoined(t *testing.T) {
	at := func(seconds uint32) change.Position { return change.At(change.Timestamp{T: seconds, I: 1}) }
	store := &away{Memory: checkpointtest.NewMemory(4)}
	w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4}, store, store)
	const n = 3 * checkpoint.MaxGaps
	for i := range uint32(n) {
		w.Lost(checkpoint.Gap{From: at(10 * (i + 1)), To: at(10*(i+1) + 5), Reason: "away", Namespaces: []string{"shop.orders"}, Found: time.Unix(int64(i), 0)})
	}
	store.gone = true
	if err := w.Flush(t.Context(), checkpoint.ReasonFinal); err == nil {
		t.Error("recorded without a store")
	}
	store.gone = false
	if err := w.Flush(t.Context(), checkpoint.ReasonFinal); err != nil {
		t.Fatal(err)
	}
	gaps, err := store.Gaps(t.Context())
	if err != nil || len(gaps) != checkpoint.MaxGaps {
		t.Fatalf("%d gaps, %v", len(gaps), err)
	}
	last := gaps[len(gaps)-1]
	if last.From.Compare(at(10*checkpoint.MaxGaps)) != 0 || last.To.Compare(at(10*n+5)) != 0 || len(last.Namespaces) != 1 {
		t.Errorf("the last is %+v", last)
	}
}

// An away is a store whose gap log cannot be written while it is gone.
type away struct {
	*checkpointtest.Memory

	gone bool
}

func (a *away) AddGap(ctx context.Context, g checkpoint.Gap) error {
	if a.gone {
		return context.DeadlineExceeded
	}
	return a.Memory.AddGap(ctx, g)
}
