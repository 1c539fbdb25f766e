package fanout_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// A slowTail is a log whose end takes long to be opened.
type slowTail struct {
	*lanetest.Log

	takes atomic.Int64 // nanoseconds
}

// Open implements lane.Source.
func (l *slowTail) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	if from.IsZero() {
		time.Sleep(time.Duration(l.takes.Load()))
	}
	return l.Log.Open(ctx, from)
}

// Where the log has wrapped past the hub, its sessions are told of what they lost, also where they look before the hub knows at which end of
// the log it goes on.
func TestLogThatWrapsPastTheHubIsToldWhileTheTailIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slowTail{Log: &lanetest.Log{}}
		w := newWorldOver(t, fanout.Config{}, source.Log, source)
		first := w.source.Append(inserts(10, 0)...)
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: change.At(first[0].Time)}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t)
		ended := make(chan error, 1)
		go func() { ended <- g.follow(s) }()
		time.Sleep(time.Minute)
		w.source.Append(inserts(10, 50)...)
		time.Sleep(time.Minute)

		source.takes.Store(int64(3 * time.Second))
		w.source.Stall(true)
		w.source.Append(inserts(40, 100)...) // nobody reads them
		w.source.Truncate(10)
		oldest, youngest := w.source.Reach()
		w.source.FailNext(&lane.LostError{First: oldest, Last: youngest, Err: errors.New("wrapped")})
		w.source.Stall(false)
		time.Sleep(time.Minute)
		w.source.Append(inserts(10, 200)...)
		time.Sleep(time.Minute)
		w.stop()
		<-ended
		if len(g.losses) != partitions {
			t.Errorf("%d losses in %d partitions", len(g.losses), partitions)
		}
		after := 0
		for _, got := range g.got {
			for _, id := range got {
				if id >= 130 {
					after++
				}
			}
		}
		if after != 20 {
			t.Errorf("%d events behind the loss, the log had 20", after)
		}
	})
}
