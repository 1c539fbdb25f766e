package checkpoint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
)

// A counting store notes the rounds that it was asked to save.
type counting struct {
	*checkpoint.Memory

	mu     sync.Mutex
	rounds []round
	fail   error // what every mark gets, while set
}

type round struct {
	at    time.Time
	marks []checkpoint.Mark
}

func (c *counting) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	c.mu.Lock()
	c.rounds = append(c.rounds, round{time.Now(), marks})
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		results := make([]error, len(marks))
		for i := range results {
			results[i] = fail
		}
		return results
	}
	return c.Memory.Save(ctx, marks)
}

func (c *counting) taken() []round {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.rounds
	c.rounds = nil
	return taken
}

// A bench is a manager with partitions whose low water a test moves.
type bench struct {
	store   *counting
	manager *checkpoint.Manager
	keepers []*checkpoint.Keeper
	terms   []change.Term
	lost    []error
	mu      sync.Mutex
	low     []change.Position
}

func newBench(t *testing.T, partitions int) *bench {
	b := &bench{store: &counting{Memory: checkpoint.NewMemory(partitions)}, low: make([]change.Position, partitions), lost: make([]error, partitions)}
	b.manager = checkpoint.NewManager(checkpoint.ManagerConfig{Fingerprint: "f", By: "n"}, b.store)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for p := range change.Partition(partitions) {
		b.terms = append(b.terms, change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: t.Context()})
	}
	if _, err := b.store.Claim(t.Context(), b.terms); err != nil {
		t.Fatal(err)
	}
	for p, term := range b.terms {
		b.keepers = append(b.keepers, b.manager.Begin(term, change.Position{}, func() change.Position {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.low[p]
		}, func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lost[p] = err
		}))
	}
	go func() {
		defer close(done)
		_ = b.manager.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// pass lets events pass a partition, all acknowledged.
func (b *bench) pass(p, events int) {
	b.mu.Lock()
	last := b.low[p].Time.I
	b.low[p] = changetest.Event{ID: 1, Time: change.Timestamp{T: 1000, I: last + uint32(events)}}.Position()
	b.mu.Unlock()
	b.keepers[p].Passed(events)
}

func TestRoundsComeByTimeByCountAndNeverTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		begun := time.Now()
		b.pass(0, 10)
		time.Sleep(20 * time.Second)
		rounds := b.store.taken()
		if len(rounds) != 1 || len(rounds[0].marks) != 1 || rounds[0].at.Sub(begun) > 7*time.Second || rounds[0].marks[0].Reason != checkpoint.ReasonBegin {
			t.Errorf("ten events: %+v", rounds)
		}
		now := time.Now()
		b.pass(1, 5)
		b.pass(0, 1000)
		time.Sleep(3 * time.Second)
		if rounds = b.store.taken(); len(rounds) != 1 || rounds[0].at.Sub(now) > 2*time.Second || len(rounds[0].marks) != 2 {
			t.Errorf("a thousand events, and five of another partition: %+v", rounds)
		}
		for range 100 {
			b.pass(0, 1000)
			b.pass(2, 1000)
			time.Sleep(100 * time.Millisecond)
		}
		rounds = b.store.taken()
		for i := 1; i < len(rounds); i++ {
			if gap := rounds[i].at.Sub(rounds[i-1].at); gap < 2*time.Second {
				t.Errorf("rounds %v apart", gap)
			}
		}
		if len(rounds) < 4 || len(rounds) > 6 {
			t.Errorf("%d rounds in 10 s", len(rounds))
		}
	})
}

func TestQuietPartitionIsSavedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		for range 300 { // progress without events
			b.mu.Lock()
			b.low[0] = changetest.HighWater(change.Timestamp{T: b.low[0].Time.T + 1, I: 1})
			b.mu.Unlock()
			time.Sleep(time.Second)
		}
		if n := len(b.store.taken()); n < 4 || n > 6 {
			t.Errorf("%d rounds in five minutes", n)
		}
		time.Sleep(10 * time.Minute)
		if n := len(b.store.taken()); n > 1 {
			t.Errorf("%d rounds while nothing moved", n)
		}
	})
}

func TestQuietPartitionFollowsAShortLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.manager.SetReach(time.Minute)
		for range 300 {
			b.mu.Lock()
			b.low[0] = changetest.HighWater(change.Timestamp{T: b.low[0].Time.T + 1, I: 1})
			b.mu.Unlock()
			time.Sleep(time.Second)
		}
		rounds := b.store.taken()
		for i := 1; i < len(rounds); i++ {
			if pause := rounds[i].at.Sub(rounds[i-1].at); pause > 20*time.Second {
				t.Errorf("a log of a minute, and %s between two marks", pause)
			}
		}
		if len(rounds) < 15 {
			t.Errorf("%d rounds in five minutes", len(rounds))
		}
	})
}

func TestTermThatEndedIsNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		ended, end := context.WithCancel(t.Context())
		b.keepers[0] = b.manager.Begin(change.Term{Partition: 0, Epoch: b.terms[0].Epoch, Context: ended}, change.Position{}, func() change.Position { return b.low[0] }, nil)
		end()
		b.pass(0, 2000)
		b.pass(1, 2000)
		b.keepers[1].End()
		time.Sleep(time.Minute)
		if err := b.manager.Flush(t.Context(), checkpoint.ReasonFinal); err != nil {
			t.Error(err)
		}
		if rounds := b.store.taken(); len(rounds) != 0 {
			t.Errorf("saved %+v", rounds)
		}
	})
}

func TestFencedTermIsToldOnceAndLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		if _, err := b.store.Claim(t.Context(), []change.Term{{Partition: 0, Epoch: change.Epoch{Incarnation: 1, Revision: 2}, Context: t.Context()}}); err != nil {
			t.Fatal(err)
		}
		b.pass(0, 2000)
		b.pass(1, 2000)
		time.Sleep(5 * time.Second)
		b.mu.Lock()
		if !errors.Is(b.lost[0], checkpoint.ErrFenced) || b.lost[1] != nil {
			t.Errorf("told %v", b.lost)
		}
		b.mu.Unlock()
		b.pass(0, 2000)
		b.pass(1, 2000)
		b.store.taken()
		time.Sleep(5 * time.Second)
		if rounds := b.store.taken(); len(rounds) != 1 || len(rounds[0].marks) != 1 || rounds[0].marks[0].Partition != 1 {
			t.Errorf("saved %+v", rounds)
		}
	})
}

func TestFailedRoundIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.store.mu.Lock()
		b.store.fail = errors.New("away")
		b.store.mu.Unlock()
		b.pass(0, 1000)
		time.Sleep(10 * time.Second)
		if n := len(b.store.taken()); n < 2 || !b.manager.Failing() {
			t.Errorf("%d attempts, failing %v", n, b.manager.Failing())
		}
		if err := b.manager.Flush(t.Context(), checkpoint.ReasonFinal); err == nil {
			t.Error("a failed flush is no error")
		}
		b.store.mu.Lock()
		b.store.fail = nil
		b.store.mu.Unlock()
		time.Sleep(10 * time.Second)
		m, err := b.store.Load(t.Context(), 0)
		if err != nil || m.Position.Compare(b.low[0]) != 0 || b.manager.Failing() {
			t.Errorf("%v, %v, failing %v", m.Position, err, b.manager.Failing())
		}
	})
}

// A node whose partitions have gone to others while the store was away has nothing left to save that would show that it is back: it must not
// be taken for one that cannot save marks, or it is never given partitions again.
func TestMarksOfPartitionsThatAreGoneDoNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.store.mu.Lock()
		b.store.fail = errors.New("away")
		b.store.mu.Unlock()
		b.pass(0, 1000)
		time.Sleep(10 * time.Second)
		if !b.manager.Failing() {
			t.Error("nothing fails while the store is away")
		}
		b.keepers[0].End()
		if b.manager.Failing() {
			t.Error("marks fail that nobody is to save")
		}
	})
}

// A round waits for the one before it no longer than it may take.
func TestSaveWaitsForAnotherWithinItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hanging{checkpoint.NewMemory(1)}
		m := checkpoint.NewManager(checkpoint.ManagerConfig{SaveTimeout: time.Minute}, store)
		at := change.At(change.Timestamp{T: 1000, I: 1})
		k := m.Begin(change.Term{Context: t.Context()}, change.Position{}, func() change.Position { return at }, func(error) {})
		defer k.End()
		began := time.Now()
		go func() { _ = m.Flush(t.Context(), checkpoint.ReasonFinal) }()
		synctest.Wait()
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Flush(within, checkpoint.ReasonFinal); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A hanging store answers nobody.
type hanging struct{ *checkpoint.Memory }

func (hanging) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	<-ctx.Done()
	return slices.Repeat([]error{context.Cause(ctx)}, len(marks))
}

// A token too large to keep is saved as its time, which stands before it: that must not count as something to save again.
func TestLargeTokenIsSavedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		p := changetest.Event{ID: 1, Time: change.Timestamp{T: 1000, I: 1}}.Position()
		p.Token = largeToken(string(p.Token[15:15+40]) + strings.Repeat("0", 40<<10))
		b.mu.Lock()
		b.low[0] = p
		b.mu.Unlock()
		b.keepers[0].Passed(1)
		time.Sleep(5 * time.Minute)
		if n := len(b.store.taken()); n != 1 {
			t.Errorf("saved %d times", n)
		}
	})
}

// largeToken makes a resume token of the hexadecimal _data.
func largeToken(data string) []byte {
	n := len(data) + 17
	b := []byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 2, '_', 'd', 'a', 't', 'a', 0, byte(len(data) + 1), byte((len(data) + 1) >> 8), byte((len(data) + 1) >> 16), 0}
	return append(append(b, data...), 0, 0)
}
