package trail

import (
	"iter"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway/wire"
)

// A Set is all partitions of a session, and the batches that nobody has taken yet.
type Set struct {
	epoch  func(change.Partition) change.Epoch
	trails []*Trail
	queue  []*wire.Batch

	// Events and Bytes are queued or sent, and not acknowledged. Notices in the place of events count as events.
	Events, Bytes int
}

// NewSet makes a Set of so many partitions, which trail makes. epoch goes into batches.
func NewSet(partitions int, epoch func(change.Partition) change.Epoch, trail func(change.Partition) *Trail) *Set {
	s := &Set{epoch: epoch, trails: make([]*Trail, partitions)}
	for p := range s.trails {
		s.trails[p] = trail(change.Partition(p))
	}
	return s
}

// Attached reports whether any partition is delivered.
func (s *Set) Attached() bool {
	return slices.ContainsFunc(s.trails, func(t *Trail) bool { return !t.away })
}

// Of returns one partition, nil where there is none.
func (s *Set) Of(p change.Partition) *Trail {
	if int(p) >= len(s.trails) {
		return nil
	}
	return s.trails[p]
}

// Delivered are the partitions that are not away.
func (s *Set) Delivered() iter.Seq2[change.Partition, *Trail] {
	return func(yield func(change.Partition, *Trail) bool) {
		for p, t := range s.trails {
			if !t.away && !yield(change.Partition(p), t) {
				return
			}
		}
	}
}

// Take hands out what is queued.
func (s *Set) Take() (queue []*wire.Batch) {
	queue, s.queue = s.queue, nil
	for _, b := range queue {
		s.trails[b.Partition].give()
	}
	return queue
}

// begin puts a new batch into the queue.
func (s *Set) begin(p change.Partition) *wire.Batch {
	b := s.trails[p].begin(p, s.epoch(p))
	s.queue = append(s.queue, b)
	return b
}

// Welcome queues an empty batch in every partition where it begins, so that the subscriber knows where it stands in each; with lost it says
// what may have been missed before.
func (s *Set) Welcome(lost *delivery.Notice) {
	for p, t := range s.trails {
		t.welcome(s.begin(change.Partition(p)), lost)
	}
}

// Add queues an event, in one form, in the batch of its partition: all its forms in the same batch, because who has a batch has its events;
// again says that another form is there.
func (s *Set) Add(p change.Partition, position change.Position, e wire.Event, again bool) {
	t := s.trails[p]
	if t.open == nil || !again && !t.open.Grows() {
		s.begin(p)
	}
	t.put(position, e)
	s.Events++
	s.Bytes += len(e.Payload)
}

// Reached moves the ends of the batches that a reply has filled to where the reply ends.
func (s *Set) Reached(touched []change.Partition, to change.Position) {
	for _, p := range touched {
		s.trails[p].reached(to)
	}
}

// Bookmark queues an empty batch of each partition that stands before the position and has nothing on its way.
func (s *Set) Bookmark(to change.Position) {
	place := wire.PlaceOf(to)
	for p, t := range s.Delivered() {
		if t.Idle() && place.Compare(t.at) > 0 {
			t.end(s.begin(p), to)
		}
	}
}

// Lose queues a notice in every partition that stands before the position.
func (s *Set) Lose(n *delivery.Notice, to change.Position) {
	place := wire.PlaceOf(to)
	for p, t := range s.Delivered() {
		if place.Compare(t.at) > 0 {
			t.lose(s.begin(p), n, to)
			s.count(t)
		}
	}
}

// Note queues a notice in every partition that stands before the position, right before what stands there and is queued next.
func (s *Set) Note(n *delivery.Notice, before change.Position) {
	place := wire.PlaceOf(before)
	for p, t := range s.Delivered() {
		if place.Compare(t.at) > 0 {
			t.note(s.begin(p), n)
			s.count(t)
		}
	}
}

// count counts the notice that the last batch of a partition is, like an event: who takes nothing is to hold so many.
func (s *Set) count(t *Trail) {
	t.sent[len(t.sent)-1].events++
	s.Events++
}

// Rewind moves a partition back, with a notice in its place; it is false where the partition is not there yet, or not delivered.
func (s *Set) Rewind(p change.Partition, n *delivery.Notice, to change.Position) bool {
	t := s.trails[p]
	if t.away && t.acked.After(to) {
		t.acked, t.back = to, to // the subscriber gets it again from whoever delivers it
	}
	if t.away || wire.PlaceOf(to).Compare(t.at) >= 0 {
		return false
	}
	t.rewind(to)
	t.rewound(s.begin(p), n, to)
	s.count(t)
	return true
}

// Again says that the log is read again from an earlier position: what the partitions have had is skipped.
func (s *Set) Again() {
	for _, t := range s.Delivered() {
		t.again()
	}
}

// Attach delivers a partition from where the subscriber stands.
func (s *Set) Attach(p change.Partition, have Known) {
	t := s.trails[p]
	s.drop(p)
	t.attach(have)
	t.welcome(s.begin(p), nil)
}

// Detach delivers a partition no longer. One that there is not, or that is not delivered, changes nothing.
func (s *Set) Detach(p change.Partition) {
	if t := s.Of(p); t != nil && !t.away {
		s.drop(p)
		t.away = true
	}
}

// drop takes back what a partition has queued or on its way.
func (s *Set) drop(p change.Partition) {
	events, bytes := s.trails[p].drop()
	s.Events, s.Bytes = s.Events-events, s.Bytes-bytes
	s.queue = slices.DeleteFunc(s.queue, func(b *wire.Batch) bool { return b.Partition == p })
}

// Ack acknowledges a partition up to a place, and returns of how many batches; it is false where the place is beyond what was sent.
func (s *Set) Ack(p change.Partition, to wire.Place) (batches int, ok bool) {
	events, bytes, batches, ok := s.trails[p].ack(to)
	s.Events, s.Bytes = s.Events-events, s.Bytes-bytes
	return batches, ok
}

// Settle notes what is queued or sent and not acknowledged: a stop waits for it.
func (s *Set) Settle() {
	for _, t := range s.trails {
		t.settle()
		t.due = len(t.sent)
	}
}

// Due reports whether anything is not acknowledged that was there at Settle.
func (s *Set) Due() bool {
	return slices.ContainsFunc(s.trails, func(t *Trail) bool { return t.due > 0 })
}

// Standing returns where the subscriber stands in partitions where that is not wherever the session is. It is false while it has yet to
// acknowledge a loss that no position would tell again.
func (s *Set) Standing() (positions map[change.Partition]change.Position, ok bool) {
	positions = make(map[change.Partition]change.Position)
	for p, t := range s.trails {
		at, same, ok := t.standing()
		if !ok {
			return nil, false
		}
		if !same {
			positions[change.Partition(p)] = at
		}
	}
	return positions, true
}
