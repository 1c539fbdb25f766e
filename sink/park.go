package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Router is a Target with several destinations, such as topics, without an order between them.
type Router interface {
	// Destination returns the destination of a message, empty if all messages of its partition have
	// one order. The publishing goroutine calls it.
	Destination(m *Message) string
}

// destination returns the destination of a message, empty if no later message may overtake it.
func (s *Sink) destination(m *Message) string {
	if router, is := s.target.(Router); is && m.Op != OpLoss {
		return router.Destination(m)
	}
	return ""
}

// An order identifies messages that must arrive in order.
type order struct {
	partition   change.Partition
	destination string
}

func (s *Sink) order(m *Message) order { return order{m.Partition, s.destination(m)} }

// A closed is a destination to which the sink publishes nothing.
type closed struct {
	err    error     // why
	due    time.Time // when the sink tries it again, zero: when an operator resumes the sink
	trying bool      // it is being tried again
}

// tryEvery is the interval at which a sink tries a destination again for which its target takes
// nothing.
const tryEvery = 10 * time.Second

// refuse stops publishing after a permanent refusal: to the message's destination if the target has
// several, otherwise completely. Meanwhile the sink publishes to other destinations within the
// session's credit; it acknowledges nothing after the waiting messages. It continues when an
// operator resumes the sink, or if the target refused the destination, and no message, when the
// target takes it again.
func (s *Sink) refuse(m *Message, err error, destination bool) {
	to := s.destination(m)
	if to == "" {
		m.attempts = 0
		s.halt(err)
		return
	}
	now := closed{err: fmt.Errorf("what goes to %s waits: %w", to, err)}
	if destination {
		now.due = time.Now().Add(tryEvery)
	} else {
		m.attempts = 0
	}
	s.hold(func() {
		if s.mu.parked == nil {
			s.mu.parked = make(map[string]closed)
		}
		if !s.mu.parked[to].trying {
			s.cfg.Logger.Warn("sink halted", "error", now.err)
		}
		s.mu.parked[to] = now
		s.park(m, to)
	})
}

// park makes a message, and later ones to the same destination, wait. No message is under way, and
// the caller holds the mutex. A later message of the partition that is over will be repeated after
// it.
func (s *Sink) park(first *Message, to string) {
	after := false
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			after = after || m == first
			follows := m.state != over || m.Partition == first.Partition
			if !after || !follows || s.destination(m) != to {
				continue
			}
			if m.state == over {
				f.left++
			}
			m.state = parked
		}
	}
}

// parks makes a message wait if its destination waits. The caller holds the mutex.
func (s *Sink) parks(m *Message) bool {
	if len(s.mu.parked) == 0 {
		return false
	}
	if to, waits := s.mu.parked[s.destination(m)]; !waits || to.trying {
		return false
	}
	m.state = parked
	return true
}

// isDue reports whether the sink has to try a destination again. The caller holds the mutex.
func (s *Sink) isDue(now time.Time) bool {
	for _, to := range s.mu.parked {
		if !to.due.IsZero() && !to.trying && !now.Before(to.due) {
			return true
		}
	}
	return false
}

// reopen releases what waits for destinations that the sink has to try again. Only the loop calls
// it, and it holds the mutex.
func (s *Sink) reopen(now time.Time) {
	if !s.isDue(now) || s.mu.paused || s.mu.halted != nil {
		return
	}
	for name, to := range s.mu.parked {
		to.trying = !to.due.IsZero() && !now.Before(to.due)
		s.mu.parked[name] = to
	}
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == parked && s.mu.parked[s.destination(m)].trying {
				m.state, m.err = waiting, ErrEarlier
				s.mu.failed = true
			}
		}
	}
}

// opened opens the destinations that the sink has tried again: nothing waits any more. The caller
// holds the mutex.
func (s *Sink) opened() {
	before := len(s.mu.parked)
	maps.DeleteFunc(s.mu.parked, func(_ string, to closed) bool { return to.trying })
	if len(s.mu.parked) < before {
		s.stall()
	}
}

// unpark releases the waiting messages for publishing. The caller holds the mutex.
func (s *Sink) unpark() {
	s.mu.parked = nil
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == parked {
				m.state, m.err, m.attempts = waiting, ErrEarlier, 0
				s.mu.failed = true
			}
		}
	}
}

// dropParked drops waiting messages of partitions that the node has lost. The caller holds the
// mutex.
func (s *Sink) dropParked() {
	if len(s.mu.parked) == 0 {
		return
	}
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == parked && !m.owned() {
				m.state = over
				f.left--
			}
		}
	}
	if !s.mu.failed {
		s.finish()
	}
}

// parkedError returns an error that names the waiting destinations, nil if none waits. The caller
// holds the mutex.
func (s *Sink) parkedError() error {
	var errs []error
	for _, to := range slices.Sorted(maps.Keys(s.mu.parked)) {
		errs = append(errs, s.mu.parked[to].err)
	}
	return errors.Join(errs...)
}
