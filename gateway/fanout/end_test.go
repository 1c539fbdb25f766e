package fanout_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
)

// idsBehind returns the documents of a partition's events behind a position, in their order.
func idsBehind(t *testing.T, written []changetest.Event, p change.Partition, at change.Position) (ids []int64) {
	t.Helper()
	partitioner := change.NewPartitioner(partitions)
	for _, w := range written {
		e, err := change.Parse(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if of, _ := partitioner.Of(&e); of == p && e.Position().After(at) {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// A session that begins where a batch ended gets all that came behind it in the batch's partition, and nothing else, wherever in a
// reply that was and however often the batch grew.
func TestBatchesSayExactlyWhereTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{Bookmark: time.Second})
		written := w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: written[0].Position()}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		var batches []*wire.Batch
		for round := range 6 {
			// Many of one partition in one reply end batches in its middle; a quiet second ends them between events.
			written = append(written, w.source.Append(inserts(10+300*(round%3), int64(1000*(round+1)))...)...)
			time.Sleep(1500 * time.Millisecond)
			received, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			batches = append(batches, received...)
			for _, b := range received {
				if err := s.Ack(b.Partition, b.To); err != nil {
					t.Fatal(err)
				}
			}
		}
		inside, ended := 0, map[string]bool{}
		for _, b := range batches {
			if b.End.IsZero() || wire.HeadOf(b.End) != b.To.Head {
				t.Fatalf("partition %d: a batch of %d ends at %v, its To is %x", b.Partition, len(b.Events), b.End, b.To.Head)
			}
			if !b.End.IsProgress() {
				inside++
			}
			where := fmt.Sprint(b.Partition, b.To)
			if ended[where] {
				continue
			}
			ended[where] = true
			again, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "again", Start: b.End}, all(t))
			if err != nil {
				t.Fatal(err)
			}
			g := newGateway(t)
			go func() { _ = g.follow(again) }()
			time.Sleep(5 * time.Second)
			again.Close(nil)
			synctest.Wait()
			if want := idsBehind(t, written, b.Partition, b.End); !slices.Equal(g.got[b.Partition], want) || g.repeated > 0 {
				t.Errorf("partition %d behind %v: %d events, want %d, %d came twice", b.Partition, b.End, len(g.got[b.Partition]), len(want), g.repeated)
			}
		}
		if inside == 0 {
			t.Error("no batch ended inside a reply")
		}
		w.stop()
	})
}

// A session that begins where its gateway stands says so at once, as exactly as it was told.
func TestWelcomeEndsWhereTheGatewayStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		written := w.source.Append(inserts(20, 0)...)
		synctest.Wait()
		exact, told := written[7].Position(), written[12].Position()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{
			Gateway: "g", Start: exact, Have: map[change.Partition]wire.Place{1: wire.PlaceOf(exact), 2: wire.PlaceOf(told)},
			Stood: map[change.Partition]change.Position{1: exact, 3: told},
		}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		want := map[change.Partition]change.Position{0: exact, 1: exact, 2: change.At(told.Time), 3: exact}
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			if end, first := want[b.Partition]; first && (b.End.Compare(end) != 0 || !slices.Equal(b.End.Token, end.Token)) {
				t.Errorf("partition %d: the welcome ends at %v, want %v", b.Partition, b.End, end)
			}
			delete(want, b.Partition)
		}
		if len(want) > 0 {
			t.Errorf("no welcome in %v", want)
		}
		w.stop()
	})
}

// A gateway may know by another session where a batch will end that waits for its transport, and acknowledge it.
func TestAcknowledgementOfWhatWasNotHandedOutChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		end := w.log.End()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: end}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		welcome, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range welcome {
			if err := s.Ack(b.Partition, b.To); err != nil {
				t.Fatal(err)
			}
		}
		e := w.source.Append(changetest.Event{ID: 5})[0]
		synctest.Wait()
		parsed, err := change.Parse(e.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := change.NewPartitioner(partitions).Of(&parsed)
		ahead := wire.PlaceOf(w.log.End())
		for _, to := range []wire.Place{ahead, wire.PlaceOf(e.Position()), {Head: ahead.Head, Hashes: wire.PlaceOf(e.Position()).Hashes}} {
			if err := s.Ack(p, to); err != nil && fault.Of(err) != fault.SessionBadAck {
				t.Fatal(err)
			}
		}
		if low := w.hub.Low(p, w.log.End()); low.After(end) {
			t.Errorf("the mark may go to %v, and nobody has had what is behind %v", low, end)
		}
		w.source.Append(changetest.Event{ID: 5}) // grows the batch
		synctest.Wait()
		batches, _, err := s.Receive(t.Context())
		if err != nil || len(batches) != 1 || len(batches[0].Events) != 2 {
			t.Fatalf("%v, %v", batches, err)
		}
		if err := s.Ack(p, batches[0].To); err != nil {
			t.Fatal(err)
		}
		if low := w.hub.Low(p, w.log.End()); low.Compare(w.log.End()) != 0 {
			t.Errorf("everything is acknowledged, and the mark may go to %v", low)
		}
		w.stop()
	})
}
