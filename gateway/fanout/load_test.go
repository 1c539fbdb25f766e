package fanout_test

import (
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

func TestHubTellsHowMuchItHasToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := fanout.New(fanout.Config{Partitions: partitions}, lane.NewLog(lane.Config{Partitions: partitions}, &lanetest.Log{}))
		if l := idle.Load(); l.Stands {
			t.Errorf("before it reads: %+v", l)
		}
		w := newWorld(t, fanout.Config{})
		defer w.stop()
		w.source.Append(changetest.Event{ID: int64(1)})
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g"}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l := w.hub.Load(); !l.Stands || l.Live != 1 || l.Subscriptions != 1 || l.Bytes != 0 {
			t.Errorf("before anything is sent: %+v", l)
		}
		w.source.Append(changetest.Event{ID: int64(2)})
		synctest.Wait()
		if l := w.hub.Load(); l.Bytes == 0 {
			t.Errorf("with something to acknowledge: %+v", l)
		}
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			if err := s.Ack(b.Partition, b.To); err != nil {
				t.Fatal(err)
			}
		}
		if l := w.hub.Load(); l.Bytes != 0 {
			t.Errorf("when it is acknowledged: %+v", l)
		}
	})
}
