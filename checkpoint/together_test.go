package checkpoint_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// A slow store takes a second for each save.
type slow struct {
	*checkpointtest.Memory

	mu    sync.Mutex
	saves int
}

func (s *slow) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	s.mu.Lock()
	s.saves++
	s.mu.Unlock()
	time.Sleep(time.Second)
	return s.Memory.Save(ctx, all)
}

// A reader is a subscriber that is at one place.
type reader struct {
	claimed checkpoint.Checkpoint
	at      change.Position
}

func (r reader) Progress() []checkpoint.Progress {
	c := r.claimed
	c.Position = r.at
	return []checkpoint.Progress{{Checkpoint: c, Events: 1}}
}

func (r reader) Refused(checkpoint.Checkpoint, error) {}

// Of thousands of subscribers that leave together none waits for the saves of the others, one after
// the other.
func TestSubscribersThatLeaveTogetherAreSavedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		store := &slow{Memory: checkpointtest.NewMemory(4)}
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4}, store, store)
		to := change.At(change.Timestamp{T: 1000, I: 1})
		var leaving sync.WaitGroup
		for i := range n {
			first := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: fmt.Sprint(i)}, Position: change.At(change.Timestamp{T: 1, I: 1}), Partitions: 4, Reason: checkpoint.ReasonBegin}
			claimed, err := store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now()}, first)
			if err != nil {
				t.Fatal(err)
			}
			k := w.Keep(reader{claimed, to}, claimed)
			leaving.Go(func() {
				defer k.End()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := k.Save(ctx, checkpoint.ReasonFinal); err != nil {
					t.Errorf("subscriber %d: %v", i, err)
				}
			})
		}
		leaving.Wait()
		saved, err := store.List(t.Context())
		if err != nil || len(saved) != n {
			t.Fatalf("%d checkpoints, %v", len(saved), err)
		}
		for _, c := range saved {
			if c.Position.Compare(to) != 0 {
				t.Errorf("%s is at %s", c.Key, c.Position)
			}
		}
		if store.saves > 3 {
			t.Errorf("%d saves", store.saves)
		}
	})
}
