package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// A refusing log refuses positions although it has them.
type refusing struct {
	*lanetest.Log

	times atomic.Int64 // how often any position is refused
	until uint32       // positions before this second always are
}

// Open implements lane.Source.
func (l *refusing) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	if !from.IsZero() && (l.times.Add(-1) >= 0 || from.Time.T < l.until) {
		return nil, &lane.LostError{First: change.Timestamp{T: 1}, Err: errors.New("refused")}
	}
	return l.Log.Open(ctx, from)
}

// A session whose position is refused once, although the log should have it, tries again and is told of nothing. One that is refused for good
// goes on at the earliest place that the log lets be opened, and is told up to there.
func TestSessionThatIsRefusedDoesNotGoToTheLogsEnd(t *testing.T) {
	for _, c := range []struct {
		times          int64
		until          uint32
		losses, events int
	}{{times: 1, events: 100}, {until: 1100, losses: partitions, events: 100 - 20}, {until: 1 << 31, losses: partitions}} {
		t.Run(fmt.Sprintf("%d times, before %d", c.times, c.until), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &refusing{Log: &lanetest.Log{ReplyEvents: 10}, until: c.until}
				source.times.Store(c.times)
				first := source.Append(inserts(20, 0)...)
				source.Tick(100)
				source.Append(inserts(80, 20)...)
				source.Tick(100)
				w := newWorldOver(t, fanout.Config{}, source.Log, source)
				synctest.Wait()
				s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: change.At(first[0].Time)}, all(t))
				if err != nil {
					t.Fatal(err)
				}
				g := newGateway(t)
				ended := make(chan error, 1)
				go func() { ended <- g.follow(s) }()
				time.Sleep(time.Minute)
				w.stop()
				<-ended
				events := 0
				for _, ids := range g.got {
					events += len(ids)
				}
				if len(g.losses) != c.losses || events < c.events || c.losses == 0 && events != c.events {
					t.Errorf("%d losses, %d events", len(g.losses), events)
				}
			})
		})
	}
}
