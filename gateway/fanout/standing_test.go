package fanout_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
)

// Where a gateway stood is saved after its session has been closed, too: it does not stand further back for that.
func TestSessionThatIsClosedStandsWhereItStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{Bookmark: time.Second})
		first := w.source.Append(inserts(10, 0)...)
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: first[9].Position()}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t)
		ended := make(chan error, 1)
		go func() { ended <- g.follow(s) }()
		for range 10 {
			time.Sleep(10 * time.Second)
			w.source.Append(inserts(5, 100)...)
			w.source.Tick(10)
		}
		time.Sleep(10 * time.Second)
		before, positions, ok := s.Standing()
		if !ok || len(positions) != 0 || !before.After(first[9].Position()) {
			t.Fatalf("it stands at %v, %v, %t", before, positions, ok)
		}
		w.hub.Detach(fault.Newf(fault.NodeDetached, "cut off"))
		<-ended
		if after, _, ok := s.Standing(); !ok || before.After(after) {
			t.Errorf("closed, it stands at %v, it stood at %v", after, before)
		}
		w.stop()
	})
}

// A partition that is moved back is moved back in what is kept of a gateway whose session does not deliver it, too: what another session
// delivers again must not be lost with the gateway's own positions.
func TestRewindMovesWhatIsKeptOfPartitionsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		written := w.source.Append(inserts(20, 0)...)
		synctest.Wait()
		end, back := written[19].Position(), written[4].Position()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{
			Gateway: "g", Start: end, Owned: true, Have: map[change.Partition]wire.Place{0: wire.PlaceOf(end), 1: wire.PlaceOf(end)},
		}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		w.hub.Rewound(1, back)
		_, positions, ok := s.Standing()
		if !ok || positions[1].After(back) || !positions[0].After(back) {
			t.Errorf("it stands at %v, partition 1 was moved back to %v", positions, back)
		}
		w.stop()
	})
}

// A gateway that has yet to hear of a rewind tells the other nodes that it is further. What it tells once it has gone back is taken, too.
func TestGatewayThatGoesBackAfterARewindIsBelievedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		written := w.source.Append(inserts(20, 0)...)
		synctest.Wait()
		end, back, again := written[19].Position(), written[4].Position(), written[9].Position()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{
			Gateway: "g", Start: end, Owned: true, Have: map[change.Partition]wire.Place{1: wire.PlaceOf(end)},
		}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.hub.Rewound(1, back)
		for _, at := range []change.Position{end, end, again} { // the first is the acknowledgement of what it began with
			if err := s.Ack(1, wire.PlaceOf(at)); err != nil {
				t.Fatal(err)
			}
		}
		if _, positions, ok := s.Standing(); !ok || positions[1].After(again) {
			t.Errorf("it stands at %v, and has told that it is at %v", positions[1], again)
		}
		w.stop()
	})
}
