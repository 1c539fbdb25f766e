package fanout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
)

// flush is the flush_timeout of these tests.
const flush = 10 * time.Second

// live opens a session of all partitions and waits until it is on the live path with nothing to acknowledge.
func (w *world) live(cfg fanout.SessionConfig) (*fanout.Session, *gateway) {
	w.t.Helper()
	cfg.Start = w.log.End()
	s, err := w.hub.Open(w.t.Context(), cfg, all(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	if cfg.Owned {
		have := make(map[change.Partition]wire.Place)
		for p := range change.Partition(partitions) {
			have[p] = wire.PlaceOf(cfg.Start)
		}
		if err := s.Attach(have, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	g := newGateway(w.t)
	w.receive(s, g)
	if err := g.ack(s, len(g.unacked)); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	return s, g
}

// receive takes what is there, without acknowledging it.
func (w *world) receive(s *fanout.Session, g *gateway) {
	w.t.Helper()
	batches, _, err := s.Receive(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range batches {
		g.take(b)
	}
}

// count is how many events came.
func (g *gateway) count() (n int) {
	for _, ids := range g.got {
		n += len(ids)
	}
	return n
}

// settle begins a stop, and returns a channel that gets how long it took.
func (w *world) settle() <-chan time.Duration {
	took := make(chan time.Duration, 1)
	begun := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), flush)
		defer cancel()
		w.hub.Settle(ctx)
		took <- time.Since(begun)
	}()
	synctest.Wait()
	return took
}

func everyPartition() (every []change.Partition) {
	for p := range change.Partition(partitions) {
		every = append(every, p)
	}
	return every
}

// A stop waits for acknowledgements that may still come. A gateway that has gone elsewhere, with its session or with its partitions,
// acknowledges nothing any more.
func TestStopWaitsForNobodyWhoHasLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		owned bool
		leave func(*fanout.Session)
	}{
		"session ended":       {false, func(s *fanout.Session) { s.Close(nil) }},
		"owned session ended": {true, func(s *fanout.Session) { s.Close(nil) }},
		"partitions detached": {true, func(s *fanout.Session) { s.Detach(everyPartition()) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fanout.Config{})
				w.source.Append(inserts(1, 0)...)
				synctest.Wait()
				s, g := w.live(fanout.SessionConfig{Gateway: "g", Owned: tt.owned})
				w.source.Append(inserts(20, 1)...)
				synctest.Wait()
				w.receive(s, g)
				took := w.settle()
				time.Sleep(time.Second)
				tt.leave(s)
				if d := <-took; d != time.Second {
					t.Errorf("the stop took %v, and the gateway left after 1s", d)
				}
				w.stop()
			})
		})
	}
}

// While a stop waits for a gateway that acknowledges nothing, the others get what happens.
func TestStoppingHubDeliversOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		stalled, g := w.live(fanout.SessionConfig{Gateway: "stalled"})
		lively, h := w.live(fanout.SessionConfig{Gateway: "lively"})
		w.source.Append(inserts(20, 1)...)
		synctest.Wait()
		w.receive(stalled, g)
		w.receive(lively, h)
		took := w.settle()
		ended := make(chan error, 1)
		go func() { ended <- h.follow(lively) }()
		for i := range 9 {
			written, before := inserts(4, int64(100+4*i)), h.count()
			w.source.Append(written...)
			synctest.Wait()
			if n := h.count() - before; n != len(written) {
				t.Fatalf("%d of %d events came to a session of the node that stops", n, len(written))
			}
			time.Sleep(time.Second)
		}
		select {
		case d := <-took:
			t.Fatalf("the stop waited for %v only, and not for the acknowledgements", d)
		default:
		}
		for p := range change.Partition(partitions) {
			if low := w.hub.Low(p, w.log.End()); !w.log.End().After(low) {
				t.Errorf("partition %d: the mark may go to %v, and the stalled gateway has acknowledged nothing", p, low)
			}
		}
		if d := <-took; d != flush {
			t.Errorf("the stop took %v", d)
		}
		if err := <-ended; fault.Of(err) != fault.NodeStopping {
			t.Error(err)
		}
		w.source.Append(inserts(4, 1000)...)
		synctest.Wait()
		for p := range change.Partition(partitions) {
			if low := w.hub.Low(p, w.log.End()); !w.log.End().After(low) {
				t.Errorf("partition %d: the mark may go to %v after the stop has closed the stalled session", p, low)
			}
		}
		w.stop()
	})
}

// What was delivered before the stop has been acknowledged: that is what it waits for, not for what it has delivered since.
func TestStopEndsWhenWhatWasDeliveredBeforeIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		s, g := w.live(fanout.SessionConfig{Gateway: "g"})
		w.source.Append(inserts(20, 1)...)
		synctest.Wait()
		w.receive(s, g)
		due := len(g.unacked)
		took := w.settle()
		time.Sleep(time.Second)
		w.source.Append(inserts(20, 100)...)
		synctest.Wait()
		w.receive(s, g)
		if len(g.unacked) == due {
			t.Error("nothing came after the stop had begun")
		}
		if err := g.ack(s, due); err != nil {
			t.Fatal(err)
		}
		if d := <-took; d != time.Second {
			t.Errorf("the stop took %v, everything was acknowledged after 1s", d)
		}
		w.stop()
	})
}

// A gateway that is told to go elsewhere is served until it has gone, for as long as the overlap at most. Nobody comes to a node that stops.
func TestGatewaysAreServedUntilTheyHaveGoneElsewhere(t *testing.T) {
	closed, detached := func(s *fanout.Session) { s.Close(nil) }, func(s *fanout.Session) { s.Detach(everyPartition()) }
	for name, tt := range map[string]struct {
		owned        bool
		leave        func(*fanout.Session)
		leaves, want time.Duration
	}{
		"leaves":                {false, closed, 100 * time.Millisecond, 100 * time.Millisecond},
		"leaves its partitions": {true, detached, 100 * time.Millisecond, 100 * time.Millisecond},
		"never leaves":          {false, closed, time.Hour, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fanout.Config{Overlap: time.Second})
				w.source.Append(inserts(1, 0)...)
				synctest.Wait()
				s, g := w.live(fanout.SessionConfig{Gateway: "g", Owned: tt.owned})
				ended := make(chan error, 1)
				go func() { ended <- g.follow(s) }()
				w.hub.Drain()
				synctest.Wait()
				if _, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "h"}, all(t)); fault.Of(err) != fault.NodeStopping {
					t.Errorf("a session opens on a node that stops: %v", err)
				}
				time.Sleep(time.Minute) // until its partitions have moved
				leaving := time.AfterFunc(tt.leaves, func() { tt.leave(s) })
				defer leaving.Stop()
				took := w.settle()
				before := g.count()
				w.source.Append(inserts(4, 100)...)
				synctest.Wait()
				if n := g.count() - before; n != 4 {
					t.Errorf("%d of 4 events came", n)
				}
				if d := <-took; d != tt.want {
					t.Errorf("the stop took %v, want %v", d, tt.want)
				}
				<-ended
				w.stop()
			})
		})
	}
}

// Who is told to go elsewhere hears it once: sessions of all partitions when the stop begins, others when their partitions have moved.
func TestSessionsAreToldOfTheStopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		everywhere, _ := w.live(fanout.SessionConfig{Gateway: "g"})
		owned, _ := w.live(fanout.SessionConfig{Gateway: "h", Owned: true})
		told := func(s *fanout.Session, ctx context.Context) (n int) {
			for {
				_, notices, err := s.Receive(ctx)
				for _, notice := range notices {
					if notice.Kind == "shutting_down" {
						n++
					}
				}
				if err != nil {
					return n
				}
			}
		}
		w.hub.Drain()
		shortly, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, m := told(everywhere, shortly), told(owned, shortly); n != 1 || m != 0 {
			t.Errorf("told %d and %d times that the node stops", n, m)
		}
		<-w.settle()
		if n, m := told(everywhere, t.Context()), told(owned, t.Context()); n != 0 || m != 1 {
			t.Errorf("told %d and %d times after the partitions have moved", n, m)
		}
		w.stop()
	})
}
