package tenure

import (
	"context"
	"errors"
	"testing"
	"time"

	"mongostream/change"
)

// A process that stood still past its claim's life learns from the clock that its terms are over, before anything has ended them.
func TestTermIsOverAsSoonAsItsClaimIs(t *testing.T) {
	now := 100 * time.Second
	held := New(t.Context(), func() time.Duration { return now }, Granted(now, 9*time.Second))
	term := held.Begin([]change.Partition{3}, []change.Epoch{{Incarnation: 1, Revision: 7}}, now)[0]
	now += 6*time.Second - 1
	if err := term.Err(); err != nil {
		t.Errorf("within two thirds of its life: %v", err)
	}
	now++
	if err := term.Err(); !errors.Is(err, change.ErrTermLost) || term.Context.Err() != nil {
		t.Errorf("after two thirds of its life: %v", err)
	}
	held.Rely(Granted(now, 9*time.Second))
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
