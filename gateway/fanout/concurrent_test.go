package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
)

// Everything that transports, owners and operators call is called at once, while the log goes on, on sessions of both kinds: for the race
// detector, and to see that nobody waits for another for ever and that what a session hands out is its transport's alone.
func TestEverythingMayBeCalledAtOnce(t *testing.T) {
	w := newWorld(t, fanout.Config{CreditEvents: 20, CreditBytes: 10_000, Bookmark: time.Millisecond})
	written := w.source.Append(inserts(50, 0)...)
	start := change.At(written[0].Position().Time.Prev())
	var everybody sync.WaitGroup
	var first sync.Once
	var served atomic.Int64
	enough := make(chan struct{})
	for i := range 4 {
		owned := i%2 == 0
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: fmt.Sprint(i), Owned: owned, Start: start}, twoForms(t))
		if err != nil {
			t.Fatal(err)
		}
		everybody.Go(func() { // the transport
			for {
				batches, _, err := s.Receive(t.Context())
				if err != nil {
					if !over(err) {
						t.Errorf("session %d ended: %v", i, err)
					}
					return
				}
				for _, b := range batches {
					if served.Add(int64(len(b.Events))) >= 1000 {
						first.Do(func() { close(enough) })
					}
					b.Events, b.To.Hashes = b.Events[:0], append([][16]byte(nil), b.To.Hashes...) // it is the transport's
					if err := s.Ack(b.Partition, b.To); err != nil && fault.Of(err) != fault.SessionBadAck {
						t.Error(err)
					}
				}
			}
		})
		r := rand.New(rand.NewPCG(uint64(i), 3))
		everybody.Go(func() { // its client, and who watches it
			for range 300 {
				p := change.Partition(r.IntN(partitions))
				switch {
				case owned && r.IntN(2) == 0:
					if err := s.Attach(map[change.Partition]wire.Place{p: wire.PlaceOf(start)}, map[change.Partition]change.Position{p: start}); err != nil {
						t.Error(err)
					}
				case owned && r.IntN(3) == 0:
					if err := s.Detach([]change.Partition{p}); err != nil {
						t.Error(err)
					}
				case r.IntN(2) == 0:
					s.Subscribe(twoForms(t))
				default:
					s.Unsubscribe([]string{"other"})
				}
				s.Standing()
				s.Subscriptions()
			}
		})
	}
	everybody.Go(func() { // the owner of the marks, and an operator
		for i := range 300 {
			p := change.Partition(i % partitions)
			w.hub.Low(p, w.log.End())
			if i%50 == 0 {
				w.hub.Rewound(p, written[i%len(written)].Position())
			}
		}
	})
	everybody.Go(func() {
		for i := range int64(100) {
			w.source.Append(inserts(5, 50+5*i)...)
		}
	})
	everybody.Go(func() { // sessions that come and go
		for range 50 {
			s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "guest", Start: start}, twoForms(t))
			if over(err) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			s.Close(nil)
			if _, _, err := s.Receive(t.Context()); !errors.Is(err, fanout.ErrClosed) && !over(err) {
				t.Errorf("a session that was closed gives %v", err)
			}
		}
	})
	<-enough
	w.stop()
	everybody.Wait()
}

// over reports whether the world has been stopped: its hub, or the log a moment earlier.
func over(err error) bool {
	return fault.Of(err) == fault.NodeStopping || errors.Is(err, context.Canceled)
}

// twoForms are subscriptions to everything, in two forms.
func twoForms(t *testing.T) []fanout.Subscription {
	other := all(t)[0]
	other.ID, other.Shape.Format = "other", wire.JSON
	return append(all(t), other)
}
