package streamer_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/streamer"
)

// A tracked log tells of each event's bytes when the garbage collector has taken them.
type tracked struct {
	lane.Source

	first int           // of so many events
	gone  chan struct{} // one for each
}

type trackedStream struct {
	lane.Stream

	log  *tracked
	seen int
}

func (l *tracked) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	s, err := l.Source.Open(ctx, from)
	return &trackedStream{Stream: s, log: l}, err
}

func (s *trackedStream) Next(ctx context.Context) (lane.Reply, error) {
	reply, err := s.Stream.Next(ctx)
	for i := range reply.Events {
		if s.seen++; s.seen <= s.log.first {
			runtime.AddCleanup(&reply.Events[i][0], func(gone chan struct{}) { gone <- struct{}{} }, s.log.gone)
		}
	}
	return reply, err
}

// ofPartition returns an insert of a document of the partition.
func ofPartition(t *testing.T, p change.Partition) changetest.Event {
	t.Helper()
	for id := range int64(1000) {
		e, err := change.Parse(changetest.Event{ID: id}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if q, _ := change.NewPartitioner(partitions).Of(&e); p == q {
			return changetest.Event{ID: id}
		}
	}
	t.Fatalf("no document of partition %d", p)
	return changetest.Event{}
}

// What a lane has passed it lets go of: neither the rest of a large reply nor the last event of a quiet lane holds replies that the
// ring has overwritten long since.
func TestLanesHoldNoRepliesThatTheyHavePassed(t *testing.T) {
	const many = 400
	w := newWorld(t)
	w.source.ReplyEvents = many
	log := &tracked{Source: w.source, first: many + partitions, gone: make(chan struct{}, many+partitions)}
	w.open = log
	p := w.begin(streamer.Config{}, delivery.Config{})
	taken := make(chan int, 1000)
	go func() {
		for {
			batches, err := p.session.Receive(t.Context())
			if err != nil {
				return
			}
			for _, b := range batches {
				p.session.Ack(b)
				taken <- len(b.Events)
			}
		}
	}()
	pass := func(events ...changetest.Event) {
		w.source.Append(events...)
		for n := 0; n < len(events); n += <-taken {
		}
	}
	pass(inserts(many, 0)...)
	for q := range change.Partition(partitions) {
		pass(ofPartition(t, q))
	}
	for range 200 { // the ring is overwritten, by replies of one lane
		pass(ofPartition(t, 0))
	}
	runtime.GC()
	runtime.GC() // what the first one found may only now be gone from the pools
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	for left := log.first; left > 0; left-- {
		select {
		case <-log.gone:
		case <-timeout.C:
			t.Fatalf("%d of %d events are still held", left, log.first)
		}
	}
	p.stop()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
}
