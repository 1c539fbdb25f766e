package oplog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// Callers that ask while a question is under way share the next one, which begins after all of them
// have called; one that goes leaves it to the others.
func TestCallersShareAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		asked := uint32(0)
		r := oplog.NewRange(oplog.RangeConfig{Ask: func(ctx context.Context) (gap.Reach, error) {
			asked++
			reach := gap.Reach{Last: change.Timestamp{T: asked}}
			select {
			case err := <-answer:
				return reach, err
			case <-ctx.Done():
				return reach, context.Cause(ctx)
			}
		}})
		var callers sync.WaitGroup
		call := func(ctx context.Context, want uint32) {
			callers.Go(func() {
				reach, err := r.Now(ctx)
				if want == 0 && err == nil || want > 0 && (err != nil || reach.Last.T != want) {
					t.Errorf("answer %v, %v, want that of question %d", reach.Last, err, want)
				}
			})
			synctest.Wait()
		}
		call(t.Context(), 1)
		going, goes := context.WithCancel(t.Context())
		call(going, 0) // it was to ask
		for range 100 {
			call(t.Context(), 2)
		}
		goes()
		synctest.Wait()
		answer <- nil
		synctest.Wait()
		answer <- nil
		callers.Wait()
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		call(t.Context(), 4)
		answer <- errors.New("not now")
		answer <- nil
		callers.Wait()
	})
}

func TestHeadRoomIsJudgedAsConfigured(t *testing.T) {
	const hour = 3600
	reach := gap.Reach{First: change.Timestamp{T: hour}, Last: change.Timestamp{T: 101 * hour}}
	r := oplog.NewRange(oplog.RangeConfig{Warning: 6 * time.Hour, Critical: 3 * time.Hour})
	for hours, want := range map[uint32]oplog.Level{2: oplog.CriticallyLow, 4: oplog.Low, 7: oplog.Fine} {
		if room, got, ok := r.HeadRoom(reach, change.At(change.Timestamp{T: (1 + hours) * hour})); got != want || !ok {
			t.Errorf("%v until it leaves: level %d, want %d", room, got, want)
		}
	}
}
