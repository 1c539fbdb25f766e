package member

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
)

// A process that stood still past its claim's life learns from the clock that its terms are over,
// before anything has ended them.
func TestTermIsOverAsSoonAsItsClaimIs(t *testing.T) {
	now := 100 * time.Second
	held := newTermSet(t.Context(), func() time.Duration { return now }, granted(now, 9*time.Second))
	term := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 7}}, now)[0]
	now += 6*time.Second - 1
	if err := term.Err(); err != nil {
		t.Errorf("within two thirds of its life: %v", err)
	}
	now++
	if err := term.Err(); !errors.Is(err, change.ErrTermLost) || term.Context.Err() != nil {
		t.Errorf("after two thirds of its life: %v", err)
	}
	held.Rely(granted(now, 9*time.Second))
	if err := term.Err(); err != nil {
		t.Errorf("renewed in time: %v", err)
	}
	stop := errors.New("stop")
	ctx, end := context.WithCancelCause(t.Context())
	end(stop)
	if err := (change.Term{Context: ctx}).Err(); !errors.Is(err, stop) {
		t.Errorf("ended for a cause: %v", err)
	}
}

// Two claims of what was handed over find the same epoch: it is the same term.
func TestTermOfAnEpochIsMadeOnce(t *testing.T) {
	clock := func() time.Duration { return time.Minute }
	held := newTermSet(t.Context(), clock, granted(clock(), 9*time.Second))
	epoch := change.Epoch{Incarnation: 1, Revision: 7}
	adopted := held.Begin([]change.Partition{3}, []change.Epoch{epoch}, clock())[0]
	claimed := held.Begin([]change.Partition{3}, []change.Epoch{epoch}, clock())[0]
	held.Return(claimed)
	if adopted.Context != claimed.Context || adopted.Context.Err() == nil {
		t.Error("a second term of the same epoch")
	}
	next := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 8}}, clock())[0]
	if next.Context == claimed.Context || next.Context.Err() != nil {
		t.Error("the next epoch has no term of its own")
	}
}

// A partition that was taken and has come back before anybody looked has one term: the one before
// is over.
func TestTermEndsWithTheNextOfItsPartition(t *testing.T) {
	clock := func() time.Duration { return time.Minute }
	held := newTermSet(t.Context(), clock, granted(clock(), 9*time.Second))
	before := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 7}}, clock())[0]
	after := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 9}}, clock())[0]
	if err := before.Err(); !errors.Is(err, change.ErrTermLost) || after.Err() != nil {
		t.Errorf("the term before: %v, after: %v", err, after.Err())
	}
}

// A partition that has been transferred is delivered a while longer, but never after the lease
// under which it was owned.
func TestWindowEndsWithItsTimeOrItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owned, lose := context.WithCancelCause(t.Context())
		now := 100 * time.Second
		held := newTermSet(owned, func() time.Duration { return now }, granted(now, 9*time.Second))
		terms := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 7}}, now)
		held.Return(terms[0])
		window := func(d time.Duration) change.Term { return held.Window(terms, d)[0] }
		short, long := window(time.Second), window(time.Minute)
		if err := errors.Join(short.Err(), long.Err()); err != nil {
			t.Errorf("it is over before it has begun: %v", err)
		}
		if none := window(0); none.Err() == nil {
			t.Error("without a time there is no window")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if short.Err() == nil || long.Err() != nil {
			t.Errorf("after a second: %v, %v", short.Err(), long.Err())
		}
		now += 6 * time.Second // the clock goes on while the process is frozen, and timers do not
		if err := long.Err(); !errors.Is(err, change.ErrTermLost) || long.Context.Err() != nil {
			t.Errorf("after the deadline of the lease: %v", err)
		}
		now -= 6 * time.Second
		lose(change.ErrTermLost)
		if long.Err() == nil {
			t.Error("it is not over with the membership")
		}
		next := newTermSet(t.Context(), func() time.Duration { return now }, granted(now, 9*time.Second))
		if term := next.Window(terms, time.Minute)[0]; term.Err() == nil {
			t.Error("a term of another lease has a window under the next")
		}
	})
}
