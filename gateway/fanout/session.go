package fanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout/trail"
	"github.com/mongostream/streamer/gateway/tally"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/match"
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
	ids     []string     // ID alone
	failed  *tally.Tally // events on which it failed
}

// SessionConfig configures a Session.
type SessionConfig struct {
	// Gateway names the subscriber, Process one life of it.
	Gateway, Process string
	// Start is where it begins in the log; it has seen what Have tells it has seen, by partition.
	Start change.Position
	// Earliest says that it begins with the earliest change that the log holds, at Start or behind it.
	Earliest bool
	Have     map[change.Partition]wire.Place
	// Stood are whole positions, at or before those of Have, up to which it has seen everything.
	Stood map[change.Partition]change.Position
	// Owned delivers only the partitions that Attach names.
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
	live    bool
	told    bool            // that the node stops
	from    change.Position // on the live path: what is not behind it has been considered before the session joined
	matched []*Subscription // those that match the event that the hub is at

	mu struct {
		sync.Mutex
		subscriptions map[string]*Subscription
		byKey         map[match.ID]*Subscription
		index         *match.Index // of the session alone, for when it reads by itself
		trails        *trail.Set
		position      change.Position // everything up to here has been considered; not moved while on the live path
		notices       []Notice
		rewinds       int // counts them, so that who reads on meanwhile notices
		cause         error
	}
}

// A Notice is something about the service that has no place in the log.
type Notice struct {
	Kind, Text, Subscription string
	Code                     fault.Code
	At                       time.Time
	// Partitions are those concerned; none: all.
	Partitions []change.Partition
}

// Receive returns what is there next, at least one batch or notice. It blocks until there is something; a session that is over gives
// the error with which it was closed.
func (s *Session) Receive(ctx context.Context) ([]*wire.Batch, []Notice, error) {
	for {
		s.mu.Lock()
		queue, notices, cause := s.mu.trails.Take(), s.mu.notices, s.mu.cause
		s.mu.notices = nil
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
// nothing; a place beyond what was sent is refused with the fault SessionBadAck. Of a partition that is not attached it tells where the
// subscriber stands.
func (s *Session) Ack(p change.Partition, to wire.Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.trails.Of(p) == nil {
		return fault.Newf(fault.SessionBadAck, "partition %d: there is no such partition", p)
	}
	batches, ok := s.mu.trails.Ack(p, to)
	if !ok {
		return fault.Newf(fault.SessionBadAck, "partition %d: beyond what was sent", p)
	}
	if batches > 0 && s.hasRoom() {
		s.stir()
	}
	s.hub.ease()
	return nil
}

// due reports whether something is not acknowledged that a stop waits for.
func (s *Session) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.trails.Due()
}

// delivers reports whether there is anything that the session delivers.
func (s *Session) delivers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.trails.Attached()
}

// room is the share of the credit that must be free before a session that had none reads on.
const room = 2 // half

// hasCredit reports whether anything more may be queued, hasRoom whether it is worth to begin. Under the mutex.
func (s *Session) hasCredit() bool {
	return s.mu.trails.Events < s.hub.cfg.CreditEvents && s.mu.trails.Bytes < s.hub.cfg.CreditBytes
}

func (s *Session) hasRoom() bool {
	return s.mu.trails.Events <= s.hub.cfg.CreditEvents/room && s.mu.trails.Bytes <= s.hub.cfg.CreditBytes/room
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

// Close ends the session with the error that Receive gives from now on; nil means ErrClosed.
func (s *Session) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	s.mu.Lock()
	first := s.mu.cause == nil
	if first {
		s.mu.cause = cause
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
	positions, ok = s.mu.trails.Standing()
	return considered, positions, ok
}
