package checkpoint_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// A counter is a subscriber that acknowledges events, each at a position of its own, of its
// partitions in turn.
type counter struct {
	claimed []checkpoint.Checkpoint

	mu struct {
		sync.Mutex
		acked uint64
	}
}

func (c *counter) ack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.acked++
}

func (c *counter) Progress() (all []checkpoint.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, now := range c.claimed {
		acked := c.mu.acked / uint64(len(c.claimed))
		now.Position = change.At(change.Timestamp{T: 1, I: uint32(1 + acked)})
		all = append(all, checkpoint.Progress{Checkpoint: now, Events: acked})
	}
	return all
}

func (c *counter) Refused(checkpoint.Checkpoint, error) {}

// While events are acknowledged without a pause, a checkpoint is saved every EventCount of them, or
// every MinInterval where that many take less; Interval alone would let all of them wait.
func TestCheckpointIsSavedAfterSoManyEvents(t *testing.T) {
	const perSecond, seconds = 20_000, 2
	for _, c := range []struct {
		name            string
		policy          checkpoint.Policy
		partitions      int
		between         uint32 // the most events of a partition between two checkpoints
		atLeast, atMost int    // checkpoints of a partition
	}{
		{name: "by events", policy: checkpoint.Policy{EventCount: 1000, MinInterval: time.Millisecond}, partitions: 1, between: 1020, atLeast: 38, atMost: 41},
		{name: "by events of a partition", policy: checkpoint.Policy{EventCount: 1000, MinInterval: time.Millisecond}, partitions: 4, between: 1270, atLeast: 7, atMost: 11},
		{name: "by the least interval", policy: checkpoint.Policy{EventCount: 10}, partitions: 1, between: 2100, atLeast: 19, atMost: 21},
		{name: "by the configured least interval", policy: checkpoint.Policy{EventCount: 10, MinInterval: 250 * time.Millisecond}, partitions: 1, between: 5100, atLeast: 7, atMost: 9},
		{name: "by time alone", policy: checkpoint.Policy{EventCount: 1_000_000, Interval: time.Second}, partitions: 1, between: perSecond + 2500, atLeast: 1, atMost: 3},
		{name: "no floor above the interval", policy: checkpoint.Policy{EventCount: 1_000_000, Interval: 10 * time.Millisecond}, partitions: 1, between: 500, atLeast: 150, atMost: 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &busy{Memory: checkpointtest.NewMemory(4)}
				terms := make([]change.Term, c.partitions)
				for i := range terms {
					terms[i] = change.Term{Partition: change.Partition(i), Epoch: change.Epoch{Incarnation: 1, Revision: 1}}
				}
				claimed, err := store.ClaimTerms(t.Context(), "x", terms)
				if err != nil {
					t.Fatal(err)
				}
				for i := range claimed {
					claimed[i].Key = checkpoint.Key{Subscriber: "x", Shared: true, Partition: terms[i].Partition}
					claimed[i].Epoch, claimed[i].Partitions = terms[i].Epoch, 4
				}
				last, saves := make([]uint32, c.partitions), make([]int, c.partitions)
				store.saved = func(saved checkpoint.Checkpoint) {
					if saves[saved.Partition] > 0 && saved.Reason != checkpoint.ReasonInterval { // idle is what nothing was acknowledged of
						t.Errorf("saved for the reason %s", saved.Reason)
					}
					p, at := saved.Partition, saved.Position.Time.I
					if saves[p] > 0 && at-last[p] > c.between {
						t.Errorf("%d events between two checkpoints, at most %d wanted", at-last[p], c.between)
					}
					last[p] = at
					saves[p]++
				}
				w := checkpoint.NewWriter(checkpoint.WriterConfig{Policy: c.policy, Partitions: 4}, store, store)
				subscriber := &counter{claimed: claimed}
				keeper := w.Keep(subscriber)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					w.Run(ctx)
				}()
				for range perSecond * seconds {
					time.Sleep(time.Second / perSecond)
					subscriber.ack()
					keeper.Passed(1)
				}
				cancel()
				<-ended
				for _, n := range saves {
					if n < c.atLeast || n > c.atMost {
						t.Errorf("%d checkpoints, wanted %d to %d", n, c.atLeast, c.atMost)
					}
				}
			})
		})
	}
}
