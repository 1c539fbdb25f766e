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
	"github.com/mongostream/streamer/snapshot"
)

// A measured store counts what it is given.
type measured struct {
	*checkpointtest.Memory

	mu    sync.Mutex
	bytes map[string]int           // by identity
	saves map[string]int           // by subscriber
	last  map[string]time.Time     // likewise
	waits map[string]time.Duration // by subscriber, the longest between two saves
}

func (m *measured) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range all {
		text, err := checkpoint.Encode(c, checkpoint.Trail{})
		if err != nil {
			panic(err)
		}
		m.bytes[c.Claim.By] += len(text)
		if last, again := m.last[c.Subscriber]; again {
			m.waits[c.Subscriber] = max(m.waits[c.Subscriber], time.Since(last))
		}
		m.last[c.Subscriber] = time.Now()
		m.saves[c.Subscriber]++
	}
	return m.Memory.Save(ctx, all)
}

// A runner is a subscriber that has acknowledged another event at each look.
type runner struct {
	checkpoint.Checkpoint

	mu   sync.Mutex
	seen uint64
}

func (r *runner) Progress() []checkpoint.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	c := r.Checkpoint
	c.Position = change.At(change.Timestamp{T: uint32(time.Now().Unix()), I: uint32(r.seen)})
	return []checkpoint.Progress{{Checkpoint: c, Events: r.seen}}
}

func (r *runner) Refused(checkpoint.Checkpoint, error) {}

// runnerOf returns a subscriber of an identity, whose checkpoint has the progress of snapshots.
func runnerOf(t *testing.T, store checkpoint.Claimer, by, name string, snapshots int) *runner {
	t.Helper()
	first := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: by + "/" + name}, Position: change.At(change.Timestamp{T: 1, I: 1}), Partitions: 4, Reason: checkpoint.ReasonBegin,
	}
	for i := range snapshots {
		first.Snapshots = append(first.Snapshots, snapshot.Progress{Subscription: fmt.Sprintf("subscription %d", i), Reason: snapshot.Start, Done: true})
	}
	claimed, err := store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now(), By: by}, first)
	if err != nil {
		t.Fatal(err)
	}
	return &runner{Checkpoint: claimed}
}

// What an identity's large checkpoints cost the store is bounded, and only they wait for that.
func TestLargeCheckpointsArePacedByIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, sessions, length = 8 << 10, 20, 2 * time.Minute
		store := &measured{Memory: checkpointtest.NewMemory(4), bytes: map[string]int{}, saves: map[string]int{}, last: map[string]time.Time{}, waits: map[string]time.Duration{}}
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4, Policy: checkpoint.Policy{MinInterval: time.Second, IdentityRate: rate}}, store, store)
		for i := range sessions {
			w.Keep(runnerOf(t, store, "tenant", fmt.Sprint(i), 100))
		}
		w.Keep(runnerOf(t, store, "tenant", "small", 0))
		w.Keep(runnerOf(t, store, "honest", "large", 100))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(length)
		cancel()
		<-done
		// The burst, the rate, and the usual checkpoint of each interval.
		if most := rate*int((length+2*time.Minute).Seconds()) + 150<<10; store.bytes["tenant"] > most {
			t.Errorf("%d kB were saved of one identity, at most %d are allowed", store.bytes["tenant"]>>10, most>>10)
		}
		for _, name := range []string{"tenant/small", "honest/large"} {
			if wait := store.waits[name]; wait == 0 || wait > 7*time.Second {
				t.Errorf("%s was saved every %s", name, wait)
			}
		}
		for i := range sessions {
			if n := store.saves[fmt.Sprint("tenant/", i)]; n < 2 {
				t.Errorf("session %d was saved %d times", i, n)
			}
		}
	})
}

// A checkpoint that a client asks for waits for the debt of its identity, and of no other.
func TestCheckpointsAtOnceArePaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := checkpointtest.NewMemory(4)
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4}, store, store)
		large, small := runnerOf(t, store, "tenant", "large", 500).Checkpoint, runnerOf(t, store, "tenant", "small", 0).Checkpoint
		paid := 0
		for w.Pay(large) == 0 {
			paid += large.Large()
		}
		if most := 64<<10*120 + large.Large(); paid > most || paid < 64<<10*120 {
			t.Errorf("%d bytes at once, at most %d", paid, most)
		}
		for _, free := range []checkpoint.Checkpoint{small, runnerOf(t, store, "other", "large", 500).Checkpoint, runnerOf(t, store, "", "large", 500).Checkpoint} {
			if wait := w.Pay(free); wait != 0 {
				t.Errorf("%s of %q waits %s", free.Subscriber, free.Claim.By, wait)
			}
		}
		time.Sleep(w.Pay(large))
		if wait := w.Pay(large); wait != 0 {
			t.Errorf("what was waited for is not paid: %s are left", wait)
		}
	})
}
