package lane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// A slow log takes its time to open a stream at its end.
type slow struct {
	*lanetest.Log

	until chan struct{}
}

func (s slow) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	if from.IsZero() {
		select {
		case <-s.until:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s.Log.Open(ctx, from)
}

// While the tail takes long to open, the lanes that stand further back are served all the same, and join it when it is there.
func TestLanesAreServedWhileTheTailTakesLongToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slow{&lanetest.Log{ReplyEvents: 10}, make(chan struct{})}
		source.Tick(1)
		all := source.Append(inserts(20, 0)...)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		behind, young := l.All(lane.Start{Position: change.At(all[0].Time)}), l.All(lane.Start{})
		begun := time.Now()
		if err := same(read(t, behind, 20), positions(all)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < time.Second || took > 10*time.Second {
			t.Errorf("served after %v", took)
		}
		more := source.Append(inserts(5, 20)...)
		read(t, behind, 5)
		close(source.until)
		synctest.Wait()
		last := source.Append(inserts(5, 25)...)
		for _, c := range []*lane.Cursor{behind, young} {
			if err := same(read(t, c, 5), positions(last)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		if stats := l.Stats(); stats.Streams != 1 || stats.TailCursors != 2 {
			t.Errorf("%+v after %v", stats, positions(more))
		}
	})
}
