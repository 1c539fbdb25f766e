package delivery

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/wake"
)

// Receive returns at least one batch or notice. It blocks until there is one. After the session has
// ended it returns the cause.
func (s *Session) Receive(ctx context.Context) ([]*Batch, []Notice, error) {
	return s.ReceiveUntil(ctx, nil)
}

// ReceiveUntil is Receive, but it returns nothing once a value comes from the channel.
func (s *Session) ReceiveUntil(ctx context.Context, over <-chan time.Time) ([]*Batch, []Notice, error) {
	for {
		queue, notices, cause := s.take()
		if cause != nil || len(queue) > 0 || len(notices) > 0 {
			return queue, notices, cause
		}
		select {
		case <-s.received:
		case <-over:
			return nil, nil, nil
		case <-s.done:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// take removes and returns the queued batches.
func (s *Session) take() (queue []*Batch, notices []Notice, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	notices, cause = s.mu.notices, s.mu.cause
	s.mu.notices = nil
	if cause != nil || s.mu.fills {
		return nil, notices, cause
	}
	queue, s.mu.queue = s.mu.queue, nil
	if n := len(queue); n > 0 {
		s.mu.given = queue[n-1].Seq
	}
	return queue, notices, nil
}

// Ack acknowledges the received batches up to seq and returns the number of their events. Repeated
// acknowledgements are ignored; a batch that was not received is rejected with the fault
// SessionBadAck.
func (s *Session) Ack(seq uint64) (events int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq > s.mu.given {
		return 0, fault.Newf(fault.SessionBadAck, "batch %d acknowledged, but the last one sent is %d", seq, s.mu.given)
	}
	n, held := 0, 0
	now := time.Now()
	for n < len(s.mu.unacked) && s.mu.unacked[n].seq <= seq {
		b := &s.mu.unacked[n]
		s.noteAcked(b, now)
		events += b.events
		held += b.held
		s.part.GiveBack(b.lease)
		s.mu.bytes -= b.bytes
		s.mu.attached -= b.attached
		if b.loss != nil && b.loss.Own {
			s.mu.lost = appendLoss(s.mu.lost, *b.loss)
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	s.mu.events -= events
	s.mu.acked += uint64(events)
	s.mu.unacked = slices.Delete(s.mu.unacked, 0, n)
	s.mu.owes = time.Time{}
	s.noteDebt()
	s.hold(-held)
	switch {
	case !s.resumes():
	case !s.mu.live:
		s.stir()
	case s.reads.Load():
		s.hub.retries.change(s)
	}
	return events, nil
}

// resumeShare is the divisor for the share of the credit that must be free before a session resumes
// reading.
const resumeShare = 2 // one half

// hasCredit reports whether more may be queued; resumes reports whether resuming is worthwhile. The
// caller holds the mutex.
func (s *Session) hasCredit() bool {
	return s.mu.events < s.cfg.CreditEvents && s.mu.bytes < s.cfg.CreditBytes && (s.mu.released || s.part.Continues(s.mu.held))
}

func (s *Session) resumes() bool { return s.resumesWith(0, 0) }

// resumesWith is resumes after n more events. The caller holds the mutex.
func (s *Session) resumesWith(events, bytes int) bool {
	return s.mu.events+events <= s.cfg.CreditEvents/resumeShare && s.mu.bytes+bytes <= s.cfg.CreditBytes/resumeShare &&
		(s.mu.released || s.part.Resumes(s.mu.held+bytes+events*fair.EventBytes))
}

// Delivered records that the batches up to seq have been written to the subscriber, which owes an
// acknowledgement from now on. Transports call it whose subscribers acknowledge by themselves.
func (s *Session) Delivered(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.delivered = seq
	if n := len(s.mu.unacked); n > 0 && seq >= s.mu.unacked[0].seq {
		s.noteWritten(&s.mu.unacked[min(int(seq-s.mu.unacked[0].seq), n-1)])
	}
	s.noteDebt()
}

// noteDebt starts to measure the time in which the subscriber acknowledges none of its batches.
// Empty batches need no acknowledgement. The caller holds the mutex.
func (s *Session) noteDebt() {
	if !s.mu.owes.IsZero() {
		return
	}
	for _, b := range s.mu.unacked {
		if b.seq > s.mu.delivered {
			return
		}
		if b.events > 0 {
			s.mu.owes = time.Now()
			return
		}
	}
}

// credit reports whether more may be queued.
func (s *Session) credit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasCredit()
}

// idle reports whether everything is acknowledged.
func (s *Session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.unacked) == 0
}

// HasAcked reports whether the batches up to seq are acknowledged.
func (s *Session) HasAcked(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.unacked) == 0 || s.mu.unacked[0].seq > seq
}

// Credit returns how many more events, and bytes of them, the session may be sent before it
// acknowledges some.
func (s *Session) Credit() (events, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.cfg.CreditEvents-s.mu.events), max(0, s.cfg.CreditBytes-s.mu.bytes)
}

// openBatch opens a batch: the last queued one if it may grow, or a new one.
func (s *stream) openBatch() {
	if s.open != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.mu.queue); n > 0 && s.mu.queue[n-1].grows() {
		s.open, s.mu.queue = s.mu.queue[n-1], s.mu.queue[:n-1]
		return
	}
	if s.open, s.mu.spare = s.mu.spare, nil; s.open == nil {
		s.open = &Batch{}
	}
}

// Recycle takes back a batch whose events the transport has copied, for later ones: most of the
// garbage of a busy session would be batches. The caller must not use it, nor any slice of it,
// afterwards.
func (s *Session) Recycle(b *Batch) {
	if b.page != nil {
		s.hub.giveUp(b.page, 1)
	}
	clear(b.Events)
	events := b.Events[:0]
	payloads := b.payloads[:0]
	if b.memory() > maxSpare {
		s.hub.spares.events.put(events)
		s.hub.spares.payloads.put(payloads)
		events, payloads = nil, nil
	}
	*b = Batch{Events: events, payloads: payloads}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spare = b
}

// maxSpare bounds the memory of a session's spare batch, which the budget does not count.
const maxSpare = 2 << 10

// spares have the memory of larger batches that were sent, and of the payloads of pages without
// holders, for the next ones of any session. Garbage collections empty them: without them, these
// would be the garbage.
type spares struct {
	events   spareSlices[Event]
	payloads spareSlices[byte]
	pages    sync.Pool
}

// spareSlices are empty slices by the power of two of their capacity, so that a batch never counts
// for much more than twice the memory of its contents.
type spareSlices[T any] [21]sync.Pool

// roomOf returns the capacity of a class: an eighth more than the power, because a full batch has
// more than the bound by a part of its last event.
func roomOf(class int) int { return 1<<class + 1<<class/8 }

// put adds a slice, unless it is very large.
func (s *spareSlices[T]) put(of []T) {
	class := bits.Len(uint(cap(of))) - 1
	if class >= 0 && roomOf(class) > cap(of) {
		class--
	}
	if class >= 0 && class < len(s) {
		s[class].Put(&of)
	}
}

// take returns an empty slice with room for n elements, of the smallest class that has it.
func (s *spareSlices[T]) take(n int) []T {
	class := bits.Len(uint(max(1, n) - 1))
	if class > 0 && roomOf(class-1) >= n {
		class--
	}
	if class >= len(s) {
		return make([]T, 0, n)
	}
	if spare, has := s[class].Get().(*[]T); has {
		return *spare
	}
	return make([]T, 0, roomOf(class))
}

// grow returns a slice with room for n more elements: the same one, or its elements in larger
// memory, which has the usual size or twice that of before.
func (s *spareSlices[T]) grow(of []T, n, usual int) []T {
	if len(of)+n <= cap(of) {
		return of
	}
	grown := append(s.take(max(usual, len(of)+max(n, len(of)))), of...)
	clear(of)
	s.put(of[:0])
	return grown
}

// openEvents opens a batch that has room for another event, whose payload is expected to have so
// many bytes.
func (s *stream) openEvents(bytes int) {
	s.openBatch()
	b := s.open
	spares := &s.hub.spares
	b.Events = spares.events.grow(b.Events, 1, s.usual.events)
	b.payloads = spares.payloads.grow(b.payloads, bytes, s.usual.bytes)
}

// gather sorts the subscriptions that match an event by their forms.
func (s *stream) gather(subscriptions []*Subscription) {
	s.matching = s.matching[:0]
	for _, sub := range subscriptions {
		switch g := sub.group; len(g.ids) {
		case 0:
			g.ids = sub.ids
			g.one = sub
			s.matching = append(s.matching, g)
		case 1: // the slice is that of the subscription
			g.ids = append(make([]string, 0, 4), g.ids[0], sub.ID)
		default:
			g.ids = append(g.ids, sub.ID)
		}
	}
}

// appendEvent adds an event to the open batch, once for each form that its subscriptions request.
func (s *stream) appendEvent(e *change.Event, ref change.Ref, p change.Partition, keyed bool, subscriptions []*Subscription, w *Writer) {
	if !keyed {
		p = 0
	}
	came := w.came
	w = s.hide(e, w)
	for _, sub := range subscriptions {
		if sub.known != nil {
			sub.knowEvent(e)
		}
	}
	s.noteWhole(e, subscriptions)
	s.gather(subscriptions)
	for _, g := range s.matching {
		form, ids, one := g.form, g.ids, g.one
		g.ids, g.one = nil, nil
		s.openEvents(w.expected(form))
		payloads, err := w.Append(s.open.payloads, form)
		if err != nil {
			s.hub.fail(one, fault.New(fault.SessionEncoding, err))
		} else {
			w.copied += fair.EventUnits + (len(payloads)-len(s.open.payloads))/fair.CopiedBytes
			if len(s.open.Events) == 0 {
				s.open.came = came
			}
			s.open.add(Event{Ref: ref, Partition: p, Keyless: !keyed, Format: form.Format, Subscriptions: ids}, payloads)
		}
	}
	clear(s.matching)
}

// closeUnit queues the open batch if it is full. Called when everything of a position is in it: a
// batch never ends within the entries of one position, because a subscriber that has had the last
// of them drops the others as repeated.
func (s *stream) closeUnit(at change.Position) {
	if s.open != nil && !s.open.grows() {
		s.queue(change.Later(s.position(), at).Clone())
	}
}

// queue queues the open batch, which ends at to, and advances the session to to even without an
// open batch.
func (s *stream) queue(to change.Position) {
	b := s.open
	s.open = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.mu.considered
	to = change.Later(to, before) // only startAt moves a session back
	s.mu.considered = to
	if b == nil {
		return
	}
	b.To = to
	events := len(b.Events)
	if events > 0 { // one large event says nothing of the next batch, but one of any size ends it
		s.usual = usual{min(events, MaxBatchEvents), min(len(b.payloads), MaxBatchBytes)}
	}
	if b.Loss != nil || b.Snapshot != nil {
		events = 1 // a session that does not receive must run out of credit
	}
	if b.Seq == 0 {
		s.mu.last++
		if b.Snapshot == nil {
			b.Stamp, b.Snapshots = s.mu.stamp, s.mu.snapshots
		}
		b.Seq, b.size, b.Generation, b.charged = s.mu.last, len(b.payloads)+b.shared, s.mu.reading.generation, b.memory()
		s.mu.unacked = append(s.mu.unacked, unacked{
			seq: b.Seq, before: before, to: to, events: events, bytes: b.size, attached: len(b.Attached), held: b.charged, loss: b.Loss,
			reading: s.mu.reading, snapshots: s.mu.snapshots, lease: b.lease, queued: s.noteQueued(b),
		})
		s.lend(b.lease)
		if b.Loss != nil && b.Loss.Own {
			s.mu.losses++
		}
		s.mu.events += events
		s.mu.bytes += b.size
		s.mu.attached += len(b.Attached)
		s.hold(b.charged)
	} else { // the batch has grown
		last := &s.mu.unacked[len(s.mu.unacked)-1]
		s.mu.events = s.mu.events + events - last.events
		s.mu.bytes = s.mu.bytes + len(b.payloads) + b.shared - last.bytes
		b.size, b.charged = len(b.payloads)+b.shared, b.memory()
		if last.lease == nil {
			last.lease = b.lease
			s.lend(b.lease)
		}
		s.hold(b.charged - last.held)
		last.to = to
		last.events = events
		last.bytes = b.size
		last.held = b.charged
		if last.queued.IsZero() { // it had no events
			last.queued = s.noteQueued(b)
		}
	}
	s.mu.queue = append(s.mu.queue, b)
	wake.Notify(s.received)
}
