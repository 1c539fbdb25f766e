package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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

// refuse stops publishing after a permanent refusal until an operator resumes the sink: to the
// message's destination if the target has several, otherwise completely. Meanwhile the sink
// publishes to other destinations within the session's credit; it acknowledges nothing after the
// waiting messages.
func (s *Sink) refuse(m *Message, err error) {
	to := s.destination(m)
	if to == "" {
		s.halt(err)
		return
	}
	err = fmt.Errorf("what goes to %s waits: %w", to, err)
	s.tell(err, func() {
		if s.mu.parked == nil {
			s.mu.parked = make(map[string]error)
		}
		s.mu.parked[to] = err
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
	if len(s.mu.parked) == 0 || s.mu.parked[s.destination(m)] == nil {
		return false
	}
	m.state = parked
	return true
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
		errs = append(errs, s.mu.parked[to])
	}
	return errors.Join(errs...)
}
