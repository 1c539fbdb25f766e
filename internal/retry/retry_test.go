package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

func TestWaitsGrowUpToTheLongest(t *testing.T) {
	b := retry.Backoff{First: 100 * time.Millisecond, Longest: time.Second}
	for failures, most := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 5: time.Second, 1000: time.Second,
	} {
		for range 100 {
			if got := b.After(failures); got < most/2 || got > most {
				t.Fatalf("%s after %d failures, at most %s", got, failures, most)
			}
		}
	}
}

func TestUntilComplainsOnceAndSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, complaints := 0, 0
		err := retry.Until(t.Context(), func() error {
			if calls++; calls < 5 {
				return errors.New("not yet")
			}
			return nil
		}, func(error) { complaints++ })
		if err != nil || calls != 5 || complaints != 1 {
			t.Errorf("%d calls, %d complaints, %v", calls, complaints, err)
		}
	})
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		err := retry.Until(ctx, func() error { return errors.New("never") }, nil)
		if !errors.Is(err, cause) {
			t.Error(err)
		}
	})
}
