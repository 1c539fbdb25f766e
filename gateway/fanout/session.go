package fanout

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mongostream/change"
	"mongostream/delivery"
	"mongostream/fault"
	"mongostream/gateway/wire"
	"mongostream/match"
)

// ErrClosed says that the session is over.
var ErrClosed = errors.New("session closed")

// A Subscription is a filter of a session.
type Subscription struct {
	ID      string
	Program *match.Program
	Shape   wire.Shape

	session *Session
	key     match.ID
	ids     []string // ID alone
}

// SessionConfig configures a Session.
type SessionConfig struct {
	// Gateway names the subscriber, Process one life of it.
	Gateway, Process string
	// Start is where it begins in the log; it has seen what Have tells it has seen, by partition.
	Start change.Position
	Have  map[change.Partition]wire.Place
	// Stood are whole positions, at or before those of Have, up to which it has seen everything.
	Stood map[change.Partition]change.Position
	// Owned leaves out the partitions that the node does not own.
	Owned bool
	// Lost are notices for every partition, before anything else: what the subscriber may have missed before Start.
	Lost *delivery.Notice
}

// A Session is a subscriber. Its transport receives and acknowledges from any number of goroutines.
type Session struct {
	hub      *Hub
	cfg      SessionConfig
	received chan struct{} // holds one signal: there may be something to receive
	stirred  chan struct{} // holds one signal: the session has left the live path, or has credit again
	done     chan struct{}

	// Guarded by the hub's mutex.
	live bool
	from change.Position // on the live path: what is not behind it has been considered before the session joined

	mu struct {
		sync.Mutex
		subscriptions map[string]*Subscription
		byKey         map[match.ID]*Subscription
		index         *match.Index // of the session alone, for when it reads by itself
		lanes         map[change.Partition]*lane
		position      change.Position // everything up to here has been considered; not moved while on the live path
		queue         []*wire.Batch
		notices       []Notice
		rewinds       int // counts them, so that who reads on meanwhile notices
		events, bytes int // queued or sent, and not acknowledged
		cause         error
	}
}

// A lane is what a session knows of one partition.
type lane struct {
	have  *wire.Known     // what the subscriber had seen before the session, nil once the log is behind it
	at    wire.Place      // where the last batch ended
	acked change.Position // everything up to here has been acknowledged
	sent  []wire.Sent     // not acknowledged, in their order
	given int             // how many of them have been handed out
	open  *wire.Batch     // the last one of the queue, which may still grow

	before wire.Place // where it stood before it was moved back: late acknowledgements up to there mean what was sent then
}

// A Notice is something about the service that has no place in the log.
type Notice struct {
	Kind, Text, Subscription string
	Code                     fault.Code
	At                       time.Time
}

// Receive returns what is there next, at least one batch or notice. It blocks until there is something; a session that is over gives
// the error with which it was closed.
func (s *Session) Receive(ctx context.Context) ([]*wire.Batch, []Notice, error) {
	for {
		s.mu.Lock()
		queue, notices, cause := s.mu.queue, s.mu.notices, s.mu.cause
		s.mu.queue, s.mu.notices = nil, nil
		for _, b := range queue {
			s.mu.lanes[b.Partition].give()
		}
		s.mu.Unlock()
		switch {
		case cause != nil:
			return nil, notices, cause
		case s.hub.Err() != nil:
			return nil, notices, s.hub.Err() // it is closed in a moment
		case len(queue) > 0 || len(notices) > 0:
			return queue, notices, nil
		}
		select {
		case <-s.received:
		case <-s.done:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// Ack acknowledges everything of a partition up to a place at which a received batch ended. What was acknowledged before changes
// nothing; a place beyond what was sent is refused with the fault SessionBadAck.
func (s *Session) Ack(p change.Partition, to wire.Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.lanes[p]
	if l == nil {
		return fault.Newf(fault.SessionBadAck, "partition %d: nothing was sent", p)
	}
	if to.Compare(l.at) > 0 && to.Compare(l.before) > 0 {
		return fault.Newf(fault.SessionBadAck, "partition %d: beyond what was sent", p)
	}
	n := 0
	for n < l.given && l.sent[n].ReachedBy(to) {
		n++
	}
	for _, b := range l.sent[:n] {
		s.mu.events -= b.Events
		s.mu.bytes -= b.Bytes
		l.acked = b.End
	}
	l.sent, l.given = slices.Delete(l.sent, 0, n), l.given-n
	if n > 0 && s.hasRoom() {
		s.stir()
	}
	select {
	case s.hub.acked <- struct{}{}:
	default:
	}
	return nil
}

// onItsWay reports whether something was queued or sent and is not acknowledged.
func (s *Session) onItsWay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.lanes {
		if len(l.sent) > 0 {
			return true
		}
	}
	return false
}

// room is the share of the credit that must be free before a session that had none reads on.
const room = 2 // half

// hasCredit reports whether anything more may be queued, hasRoom whether it is worth to begin. Under the mutex.
func (s *Session) hasCredit() bool {
	return s.mu.events < s.hub.cfg.CreditEvents && s.mu.bytes < s.hub.cfg.CreditBytes
}

func (s *Session) hasRoom() bool {
	return s.mu.events <= s.hub.cfg.CreditEvents/room && s.mu.bytes <= s.hub.cfg.CreditBytes/room
}

// stir lets the session's loop look again. It never blocks.
func (s *Session) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// signal lets Receive look again. It never blocks.
func (s *Session) signal() {
	select {
	case s.received <- struct{}{}:
	default:
	}
}

// Tell queues a notice. It never blocks.
func (s *Session) Tell(n Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.notices) < maxNotices {
		s.mu.notices = append(s.mu.notices, n)
	}
	s.signal()
}

// maxNotices bounds the notices that wait for a subscriber that takes nothing; they are about the present, and more of them say no
// more.
const maxNotices = 100

// seen reports whether the subscriber had seen the event before the session. Under the mutex.
func (l *lane) seen(e *change.Event) bool {
	if l.have == nil {
		return false
	}
	p := e.Position()
	head := wire.HeadOf(p)
	if l.have.Has(head, p.Hash) || !p.After(l.have.Stood) {
		return true
	}
	if string(head[:]) > string(l.have.Head[:]) {
		l.have = nil
	}
	return false
}

// add queues an event that subscriptions match, in one shape, in the batch of its partition: all shapes in the same batch, because who has
// a batch has its events. Under the mutex.
func (s *Session) add(p change.Partition, e *change.Event, again bool, payload []byte, shape wire.Shape, ids []string) {
	l := s.lane(p)
	b := l.open
	if b == nil || !again && !b.Grows() {
		b = s.begin(p, l)
	}
	position := e.Position()
	b.Events = append(b.Events, wire.Event{Head: wire.HeadOf(position), Hash: position.Hash(), Payload: payload, Format: shape.Format, Subscriptions: ids})
	b.Bytes += len(payload)
	s.mu.events++
	s.mu.bytes += len(payload)
	l.end(b, position)
	l.sent[len(l.sent)-1].Events++
	l.sent[len(l.sent)-1].Bytes += len(payload)
}

// begin puts a new batch into the queue. Under the mutex.
func (s *Session) begin(p change.Partition, l *lane) *wire.Batch {
	l.settle()
	b := &wire.Batch{Partition: p, Epoch: s.hub.cfg.Epoch(p), From: l.at, To: l.at}
	s.mu.queue = append(s.mu.queue, b)
	l.open = b
	l.sent = append(l.sent, wire.Sent{To: b.To})
	return b
}

// end moves the end of the last batch. Under the mutex.
func (l *lane) end(b *wire.Batch, to change.Position) {
	place := wire.PlaceOf(to)
	last := &l.sent[len(l.sent)-1]
	last.To, last.End = place, to
	if place.Head == b.To.Head { // changes of different shards: all that was seen at this head
		for _, h := range b.To.Hashes {
			if !slices.Contains(place.Hashes, h) {
				place.Hashes = append(place.Hashes[:len(place.Hashes):len(place.Hashes)], h)
			}
		}
	}
	b.To, b.End, l.at = place, to, place
}

// reached moves the ends of the batches that a reply has filled to where the reply ends. Under the mutex.
func (s *Session) reached(touched []change.Partition, to change.Position) {
	for _, p := range touched {
		l := s.lane(p)
		if l.open != nil && !l.sent[len(l.sent)-1].End.After(to) {
			l.end(l.open, to)
		}
	}
	s.signal()
}

// bookmark queues an empty batch of each partition that stands before the position and has nothing on its way. Under the mutex.
func (s *Session) bookmark(to change.Position) {
	place := wire.PlaceOf(to)
	for p := range change.Partition(s.hub.cfg.Partitions) {
		if l := s.lane(p); len(l.sent) == 0 && l.open == nil && place.Compare(l.at) > 0 {
			l.end(s.begin(p, l), to)
		}
	}
	s.signal()
}

// lose queues a notice in every partition that stands before the position. Under the mutex.
func (s *Session) lose(n *delivery.Notice, to change.Position) {
	place := wire.PlaceOf(to)
	for p := range change.Partition(s.hub.cfg.Partitions) {
		l := s.lane(p)
		if place.Compare(l.at) <= 0 {
			continue
		}
		b := s.begin(p, l)
		b.Loss = n
		l.end(b, to)
		l.open, l.have = nil, nil
	}
	s.signal()
}

// rewind moves a partition back, with a notice in its place, and the session with it: what the other partitions have had is skipped. Under
// the mutex.
func (s *Session) rewind(p change.Partition, n *delivery.Notice, to change.Position) {
	s.mu.position = to
	s.mu.rewinds++
	for q := range change.Partition(s.hub.cfg.Partitions) {
		if l := s.lane(q); q != p {
			l.have = &wire.Known{Place: l.at}
		}
	}
	l := s.lane(p)
	if l.at.Compare(l.before) > 0 {
		l.before = l.at
	}
	l.have, l.at = nil, wire.PlaceOf(to)
	b := s.begin(p, l)
	b.Loss = n
	l.end(b, to)
	l.sent[len(l.sent)-1].Exact, l.open = true, nil
	s.signal()
}

// Close ends the session with the error that Receive gives from now on; nil means ErrClosed.
func (s *Session) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	s.mu.Lock()
	first := s.mu.cause == nil
	if first {
		s.mu.cause = cause
		s.mu.queue = nil
		close(s.done)
	}
	s.mu.Unlock()
	if first {
		s.hub.leave(s)
	}
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Standing returns how far the session has acknowledged each partition, and the position up to which all others stand. There is none
// while the subscriber has yet to acknowledge a loss that no position would tell again.
func (s *Session) Standing() (base change.Position, positions map[change.Partition]change.Position, ok bool) {
	considered := s.hub.considered(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	positions = make(map[change.Partition]change.Position)
	for p, l := range s.mu.lanes {
		if len(l.sent) > 0 {
			positions[p] = wire.Held(l.acked, l.sent)
			if l.sent[0].Unplaced {
				return considered, nil, false
			}
		}
	}
	return considered, positions, true
}
