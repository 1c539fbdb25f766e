package checkpoint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// A deaf store saves nothing.
type deaf struct{ *checkpointtest.Memory }

func (deaf) Save(_ context.Context, all []checkpoint.Checkpoint) []error {
	failed := make([]error, len(all))
	for i := range failed {
		failed[i] = errors.New("away")
	}
	return failed
}

// A subscriber that has used up its room while the store is away, and is then moved back to what
// the store has, gets that room again: what it had acknowledged comes once more, and there is
// nothing to save. As long as there is, it waits.
func TestSubscriberThatIsMovedBackHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unsaved = 10
		store := deaf{checkpointtest.NewMemory(1)}
		first := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "x"}, Position: change.At(change.Timestamp{T: 1, I: 1}), Partitions: 1, Reason: checkpoint.ReasonBegin}
		claimed, err := store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now()}, first)
		if err != nil {
			t.Fatal(err)
		}
		c := &counter{claimed: []checkpoint.Checkpoint{claimed}}
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Policy: checkpoint.Policy{MaxUnsaved: unsaved}, Partitions: 1}, store, store)
		k := w.Keep(c, claimed)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		for range unsaved {
			if k.Room() != nil {
				t.Fatal("it has no room at once")
			}
			c.ack()
			k.Passed(1)
		}
		room := k.Room()
		time.Sleep(time.Minute)
		select {
		case <-room:
			t.Fatal("it has room although nothing was saved")
		default:
		}
		if room == nil || k.Room() == nil {
			t.Fatal("it has room although nothing was saved")
		}
		c.mu.Lock()
		c.mu.acked = 0
		c.mu.Unlock()
		k.Stands(claimed)
		k.Placed()
		moved := time.Now()
		<-room
		if took := time.Since(moved); took > time.Second {
			t.Errorf("it waited for %v", took)
		}
		if k.Room() != nil {
			t.Error("it has no room")
		}
	})
}
