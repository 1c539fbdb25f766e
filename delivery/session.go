package delivery

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/mongostream/streamer/change"
)

// ErrClosed says that the session is over.
var ErrClosed = errors.New("session closed")

// Bounds of one batch.
const (
	MaxBatchEvents = 256
	MaxBatchBytes  = 256 << 10
)

// Config configures a Session.
type Config struct {
	// Wants says which events the subscriber wants; nil wants all. It must not keep the event.
	Wants func(*change.Event) bool
	// CreditEvents bounds the events that were offered and not acknowledged. Defaults to 65536.
	CreditEvents int
	// CreditBytes bounds their bytes. Defaults to 16 MiB. One batch may go beyond either bound. Lanes that wait go on when an eighth of
	// the credit has come back, or all of it.
	CreditBytes int
}

// A Lane is what a session acknowledges to.
type Lane interface {
	// Acked notes that the session has acknowledged the batch, and everything of the lane before it.
	Acked(s *Session, b *Batch)
	// Over reports whether the lane's term is over: nothing of it may go out any more.
	Over() bool
}

// A Batch is a stretch of one partition: what the session asked for between From and To, both owned by the batch; or a notice that
// stands in their place.
type Batch struct {
	Partition change.Partition
	Epoch     change.Epoch
	From, To  change.Position
	Events    []change.Event
	// Rescan says that the events are documents that were read again after a loss; From and To are where the lane stood then.
	Rescan bool
	// Notice, where there is one, says what became of the stretch; there are no events then.
	Notice *Notice

	lane  Lane
	bytes int
}

// Over reports whether the batch's term is over: a transport asks right before it sends, and drops the batch if so.
func (b *Batch) Over() bool { return b.lane.Over() }

// A Session is a subscriber. Lanes offer and the subscriber receives from any number of goroutines.
type Session struct {
	cfg      Config
	received chan struct{} // holds one signal: a batch may be there
	done     chan struct{}

	mu struct {
		sync.Mutex
		queue         []*Batch
		events, bytes int           // offered and not acknowledged
		credit        chan struct{} // closed when credit comes back; nil while nobody waits
		freedEvents   int           // acknowledged while somebody waits
		freedBytes    int
		closed        bool
	}
}

// NewSession makes a session.
func NewSession(cfg Config) *Session {
	cfg.CreditEvents = cmp.Or(cfg.CreditEvents, 65536)
	cfg.CreditBytes = cmp.Or(cfg.CreditBytes, 16<<20)
	return &Session{cfg: cfg, received: make(chan struct{}, 1), done: make(chan struct{})}
}

// Wants reports whether the subscriber wants the event.
func (s *Session) Wants(e *change.Event) bool { return s.cfg.Wants == nil || s.cfg.Wants(e) }

// Ready returns nil when the session has credit or is closed, otherwise a channel that is closed when that may have changed.
func (s *Session) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || s.ready() {
		return nil
	}
	if s.mu.credit == nil {
		s.mu.credit, s.mu.freedEvents, s.mu.freedBytes = make(chan struct{}), 0, 0
	}
	return s.mu.credit
}

// ready reports whether there is credit. Under the mutex.
func (s *Session) ready() bool {
	return s.mu.events < s.cfg.CreditEvents && s.mu.bytes < s.cfg.CreditBytes
}

// Offer hands over a batch whose events the session may keep, and its lane. It never blocks. A closed session drops it: that is
// not a loss, because what was not acknowledged holds the mark.
func (s *Session) Offer(b *Batch, lane Lane) {
	b.lane = lane
	for i := range b.Events {
		b.bytes += len(b.Events[i].Raw())
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.queue = append(s.mu.queue, b)
	s.mu.events += len(b.Events)
	s.mu.bytes += b.bytes
	s.mu.Unlock()
	select {
	case s.received <- struct{}{}:
	default:
	}
}

// Receive returns the next batches, at least one, in the order in which they were offered. It blocks until there is one; after
// Close it returns ErrClosed. What the subscriber gets of them is for [Batch.Over] to say, at the last moment.
func (s *Session) Receive(ctx context.Context) ([]*Batch, error) {
	for {
		s.mu.Lock()
		queue := s.mu.queue
		s.mu.queue = nil
		s.mu.Unlock()
		if len(queue) > 0 {
			return queue, nil
		}
		select {
		case <-s.received:
		case <-s.done:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Ack acknowledges a received batch, and with it everything of its partition before it. Acknowledge the batches of one partition
// in the order in which they came; each once.
func (s *Session) Ack(b *Batch) {
	b.lane.Acked(s, b)
	s.Drop(b)
}

// Drop lets go of a received batch that the subscriber does not get, because it is over.
func (s *Session) Drop(b *Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.events -= len(b.Events)
	s.mu.bytes -= b.bytes
	if s.mu.credit == nil {
		return
	}
	// A little credit would wake every lane that waits, and one of them would get it.
	s.mu.freedEvents, s.mu.freedBytes = s.mu.freedEvents+len(b.Events), s.mu.freedBytes+b.bytes
	if s.ready() && (s.mu.freedEvents >= s.cfg.CreditEvents/8 || s.mu.freedBytes >= s.cfg.CreditBytes/8 || s.mu.events == 0) {
		close(s.mu.credit)
		s.mu.credit = nil
	}
}

// Outstanding returns how many events were offered and are not acknowledged.
func (s *Session) Outstanding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.events
}

// Close ends the session: what it holds is dropped, whoever waits for its credit goes on.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return
	}
	s.mu.closed = true
	s.mu.queue = nil
	close(s.done)
	if s.mu.credit != nil {
		close(s.mu.credit)
		s.mu.credit = nil
	}
}

// Closed reports whether the session is over.
func (s *Session) Closed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
