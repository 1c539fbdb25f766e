package delivery_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A follower is a session to which all partitions are attached, as a transport serves it.
type follower struct {
	*delivery.Session

	t        *testing.T
	detached []change.Partition
	got      map[change.Partition]int // events
}

func (b *bench) follow(detachable bool) *follower {
	b.t.Helper()
	s := b.open(delivery.SessionConfig{Attached: true, Detachable: detachable}, deliverytest.Everything(b.t))
	places := make(map[change.Partition]delivery.Place)
	for p := range change.Partition(partitions) {
		places[p] = delivery.Place{At: b.hub.Position()}
	}
	if err := s.Attach(places, nil, nil); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	f := &follower{Session: s, t: b.t, got: make(map[change.Partition]int)}
	f.take(f.receive())
	return f
}

// receive returns what is queued, before it is handed over.
func (f *follower) receive() []*delivery.Batch {
	f.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Nanosecond)
	defer cancel()
	batches, _, err := f.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		f.t.Fatal(err)
	}
	return batches
}

// take hands batches over, and acknowledges them.
func (f *follower) take(batches []*delivery.Batch) {
	f.t.Helper()
	for _, b := range batches {
		f.Prune(b)
		f.detached = append(f.detached, b.Detached...)
		for i := range b.Events {
			e := &b.Events[i]
			if slices.Contains(f.detached, e.Partition) {
				f.t.Errorf("an event of partition %d comes after its end", e.Partition)
			}
			if len(b.Payload(i)) == 0 {
				f.t.Error("an event without a payload")
			}
			f.got[e.Partition]++
		}
		if _, err := f.Ack(b.Seq); err != nil {
			f.t.Error(err)
		}
	}
}

// window is terms of some partitions.
func window(ctx context.Context, trusted func() bool, of ...change.Partition) (terms []change.Term) {
	for _, p := range of {
		terms = append(terms, change.Term{Partition: p, Context: ctx, Trusted: trusted})
	}
	return terms
}

// count returns how many events there are of each partition.
func count(t *testing.T, events []changetest.Event, of ...change.Partition) map[change.Partition]int {
	t.Helper()
	n := make(map[change.Partition]int)
	for _, e := range events {
		if p, _ := change.NewPartitioner(partitions).Of(parse(t, e)); len(of) == 0 || slices.Contains(of, p) {
			n[p]++
		}
	}
	return n
}

func equalCounts(t *testing.T, what string, got, want map[change.Partition]int) {
	t.Helper()
	for p := range change.Partition(partitions) {
		if got[p] != want[p] {
			t.Errorf("%s: %d events of partition %d, want %d", what, got[p], p, want[p])
		}
	}
}

// Partitions that have moved are delivered until their windows are over. Then the session does not
// have them, and says so before anything else.
func TestPartitionsAreDeliveredUntilTheirWindowsAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, -1)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f, other := b.follow(true), b.follow(false)
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		moved := window(ctx, nil, 0, 1, 2, 3)
		f.Limit(moved)
		other.Limit(moved)
		within := source.Append(deliverytest.Inserts(100, 0)...)
		f.take(f.receive())
		other.take(other.receive())
		equalCounts(t, "within the window", f.got, count(t, within))
		clear(f.got)
		time.Sleep(time.Second)
		after := source.Append(deliverytest.Inserts(100, 100)...)
		f.take(f.receive())
		other.take(other.receive())
		if !slices.Equal(f.detached, []change.Partition{0, 1, 2, 3}) {
			t.Errorf("the session says that it does not have %v any more", f.detached)
		}
		equalCounts(t, "after the window", f.got, count(t, after, 4, 5, 6, 7))
		for p := range change.Partition(partitions) {
			if _, has := f.State().Partitions[p]; has != (p > 3) {
				t.Errorf("partition %d in its checkpoint: %t", p, has)
			}
		}
		equalCounts(t, "of a subscriber that would not understand", other.got, count(t, append(within, after...)))
	})
}

// What was queued in a window is not handed over after it, and not passed by the checkpoint: a
// process that was frozen past its lease's deadline finds out right before it hands anything over,
// although no timer has run.
func TestNothingOfAWindowIsHandedOverAfterTheLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, -1)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f := b.follow(true)
		trusted := true
		f.Limit(window(t.Context(), func() bool { return trusted }, 0, 1))
		before := source.Append(deliverytest.Inserts(50, 0)...)
		f.take(f.receive())
		ends := f.State().Partitions[0]
		queued := source.Append(deliverytest.Inserts(50, 50)...)
		batches := f.receive()
		trusted = false
		f.take(batches)
		want := count(t, append(before, queued...), 2, 3, 4, 5, 6, 7)
		maps.Copy(want, count(t, before, 0, 1))
		equalCounts(t, "events", f.got, want)
		if !slices.Equal(f.detached, []change.Partition{0, 1}) {
			t.Errorf("the session says that it does not have %v any more", f.detached)
		}
		if at := f.State().Partitions[0]; at.After(ends) {
			t.Errorf("the checkpoint of partition 0 is at %s, after what was handed over: %s", at, ends)
		}
	})
}

// A subscriber that attaches a partition again, because it reaches no other node, gets it from
// where it is, and every event once. One that detaches it early hears nothing.
func TestPartitionsAreAttachedAgainAfterTheirWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, -1)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f := b.follow(true)
		at := b.hub.Position()
		ctx, end := context.WithCancel(t.Context())
		f.Limit(window(ctx, nil, 0, 1))
		if err := f.Detach([]change.Partition{1}); err != nil {
			t.Fatal(err)
		}
		end()
		source.Append(deliverytest.Inserts(50, 0)...)
		synctest.Wait()
		if err := f.Attach(map[change.Partition]delivery.Place{0: {At: at}}, nil, nil); err != nil { // what is queued is not handed over yet
			t.Fatal(err)
		}
		all := source.Append(deliverytest.Inserts(50, 50)...)
		var attached bool
		for _, batch := range f.receive() {
			f.Prune(batch)
			f.detached = append(f.detached, batch.Detached...)
			attached = attached || slices.Contains(batch.Attached, 0)
			for _, e := range batch.Events {
				if e.Partition == 0 && !attached {
					t.Error("an event of the window comes after its end")
				}
				f.got[e.Partition]++
			}
		}
		if want := count(t, append(deliverytest.Inserts(50, 0), all...))[0]; f.got[0] != want || f.got[1] != 0 || !slices.Equal(f.detached, []change.Partition{0}) {
			t.Errorf("%d events of partition 0, want %d; %d of partition 1; without %v", f.got[0], want, f.got[1], f.detached)
		}
	})
}

// A window may be over before the batch that attaches its partition has been handed over. That the
// session does not have the partition is said after it as well: it is the last word.
func TestEndOfAWindowIsSaidAfterTheAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, -1)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f := b.follow(true)
		if err := f.Attach(map[change.Partition]delivery.Place{0: {At: b.hub.Position()}}, nil, nil); err != nil { // once more
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		end()
		f.Limit(window(ctx, nil, 0))
		source.Append(deliverytest.Inserts(50, 0)...)
		has := true
		for _, batch := range f.receive() {
			f.Prune(batch)
			if slices.Contains(batch.Detached, 0) {
				has = false
			}
			has = has || slices.Contains(batch.Attached, 0)
			if slices.ContainsFunc(batch.Events, func(e delivery.Event) bool { return e.Partition == 0 }) {
				t.Error("an event of the partition")
			}
		}
		if has {
			t.Error("the batch that attaches the partition is the last word")
		}
	})
}

// A partition comes back, earlier, and is cut before the batch that attaches it has been received:
// nothing of it is handed over any more, so that its checkpoint stays, whatever is acknowledged of
// the others.
func TestPartitionThatIsCutBeforeItsAttachmentIsReceivedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, -1)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f := b.follow(false)
		at := b.hub.Position()
		source.Append(deliverytest.Inserts(50, 0)...)
		received := f.receive()
		source.Append(deliverytest.Inserts(50, 50)...)
		synctest.Wait() // they are queued, and not received
		if err := f.Attach(map[change.Partition]delivery.Place{0: {At: at}}, nil, nil); err != nil {
			t.Fatal(err)
		}
		f.Cut([]change.Partition{0})
		source.Append(deliverytest.Inserts(10, 100)...)
		for _, batch := range append(received, f.receive()...) {
			if _, err := f.Ack(batch.Seq); err != nil {
				t.Fatal(err)
			}
			if got := f.State().Partitions[0]; got.After(at) {
				t.Fatalf("after batch %d it is at %s, later than %s", batch.Seq, got.Time, at.Time)
			}
		}
	})
}
