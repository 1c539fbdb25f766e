package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
)

// errorsByKind are errors as stores return them.
func errorsByKind(t *testing.T) map[checkpoint.Kind][]error {
	t.Helper()
	_, tooLarge := checkpoint.Encode(checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: "s"}, Position: change.At(change.Timestamp{T: 1}), Partitions: 1, Note: strings.Repeat("x", checkpoint.MaxBytes),
	}, checkpoint.Trail{})
	_, nameless := checkpoint.Checkpoint{}.Trimmed()
	_, _, corrupt := checkpoint.Decode("s", checkpoint.Key.String, 0, []byte("{"))
	return map[checkpoint.Kind][]error{
		checkpoint.NoFailure: {nil},
		checkpoint.CallersOwn: {
			checkpoint.ErrFenced, checkpoint.ErrRewound, checkpoint.ErrForeign, checkpoint.ErrNames, checkpoint.ErrNone, context.Canceled,
			&checkpoint.TakenError{Subscriber: "s"}, fmt.Errorf("save: %w", checkpoint.ErrFenced),
		},
		checkpoint.RowsOwn:   {tooLarge, nameless, corrupt, fault.New(fault.CheckpointNewer, errors.New("v9")), fault.New(fault.CheckpointPartitions, errors.New("8"))},
		checkpoint.StoresOwn: {errors.New("away"), context.DeadlineExceeded, fault.New(fault.EtcdRefused, errors.New("no space"))},
	}
}

func TestErrorsHaveAKind(t *testing.T) {
	t.Parallel()
	for kind, errs := range errorsByKind(t) {
		for _, err := range errs {
			if got := checkpoint.KindOf(err); got != kind {
				t.Errorf("%v is of the kind %d, want %d", err, got, kind)
			}
		}
	}
}

// A picky store refuses the checkpoints of one subscriber.
type picky struct {
	*checkpointtest.Memory

	of  string
	err error

	mu    sync.Mutex
	saves []time.Time
}

func (p *picky) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	p.mu.Lock()
	p.saves = append(p.saves, time.Now())
	p.mu.Unlock()
	results := p.Memory.Save(ctx, all)
	for i, c := range all {
		if p.err != nil && (c.Subscriber == p.of || checkpoint.KindOf(p.err) == checkpoint.StoresOwn) {
			results[i] = p.err
		}
	}
	return results
}

// A mover is a subscriber that moves on, and counts how often it is refused.
type mover struct {
	sync.Mutex

	claimed checkpoint.Checkpoint
	at      change.Position
	events  uint64
	refused int
}

func (m *mover) Progress() []checkpoint.Progress {
	m.Lock()
	defer m.Unlock()
	c := m.claimed
	c.Position = m.at
	return []checkpoint.Progress{{Checkpoint: c, Events: m.events}}
}

func (m *mover) Refused(checkpoint.Checkpoint, error) {
	m.Lock()
	defer m.Unlock()
	m.refused++
}

func (m *mover) move(k *checkpoint.Keeper, seconds uint32, events int) {
	m.Lock()
	m.at, m.events = change.At(change.Timestamp{T: seconds, I: 1}), m.events+uint64(events)
	m.Unlock()
	k.Passed(events)
}

// keep claims a name and has the writer save it.
func keep(t *testing.T, w *checkpoint.Writer, store *picky, name string) (*mover, *checkpoint.Keeper) {
	t.Helper()
	first := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: name}, Position: change.At(change.Timestamp{T: 1, I: 1}), Partitions: 4, Reason: checkpoint.ReasonBegin}
	claimed, err := store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now()}, first)
	if err != nil {
		t.Fatal(err)
	}
	m := &mover{claimed: claimed, at: claimed.Position}
	return m, w.Keep(m, claimed)
}

// A failure of each kind concerns whom it is of: a checkpoint that cannot be saved its subscriber,
// who is told, and nobody else; only the store's own failures are the node's.
func TestFailuresConcernWhomTheyAreOf(t *testing.T) {
	for kind, errs := range errorsByKind(t) {
		for i, err := range errs {
			t.Run(fmt.Sprint(int(kind), "/", i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &picky{Memory: checkpointtest.NewMemory(4), of: "bad", err: err}
					w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4}, store, store)
					bad, badKeeper := keep(t, w, store, "bad")
					good, goodKeeper := keep(t, w, store, "good")
					go w.Run(t.Context())
					bad.move(badKeeper, 5, 1)
					good.move(goodKeeper, 5, 1)
					time.Sleep(20 * time.Second)
					kind := checkpoint.KindOf(err)
					if failing := w.Failing(); failing != (kind == checkpoint.StoresOwn) {
						t.Errorf("failing: %t", failing)
					}
					bad.Lock()
					if told := bad.refused > 0; kind != checkpoint.CallersOwn && told != (kind == checkpoint.RowsOwn) {
						t.Errorf("told: %t", told)
					}
					bad.Unlock()
					if kind == checkpoint.StoresOwn {
						return
					}
					bad.move(badKeeper, 6, 1)
					good.move(goodKeeper, 6, 1)
					if err := goodKeeper.Save(t.Context(), checkpoint.ReasonHandoff); err != nil {
						t.Errorf("the other's save: %v", err)
					}
					if err := w.Flush(t.Context(), checkpoint.ReasonFinal); err != nil && kind != checkpoint.CallersOwn {
						t.Errorf("flush: %v", err)
					}
					if saved, err := store.Load(t.Context(), "good"); err != nil || saved[0].Position.Time.T != 6 {
						t.Errorf("the other is at %+v, %v", saved, err)
					}
					if kind == checkpoint.RowsOwn {
						if err := badKeeper.Save(t.Context(), checkpoint.ReasonFinal); checkpoint.KindOf(err) != checkpoint.RowsOwn {
							t.Errorf("its own save: %v", err)
						}
					}
				})
			})
		}
	}
}

// A subscriber that is in a hurry does not shorten the pause after a round that the store failed.
func TestHurryDoesNotHammerAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &picky{Memory: checkpointtest.NewMemory(4), err: errors.New("away")}
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Partitions: 4, Policy: checkpoint.Policy{EventCount: 10}}, store, store)
		m, k := keep(t, w, store, "fast")
		go w.Run(t.Context())
		for i := range uint32(400) {
			m.move(k, 2+i, 10)
			time.Sleep(50 * time.Millisecond)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if n := len(store.saves); n < 5 || n > 11 {
			t.Errorf("%d rounds in 20 s against a store that fails", n)
		}
	})
}
