package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Router is a Target with several destinations, as topics, that have no order among each other.
type Router interface {
	// Destination returns where a message goes, empty where it has an order among all messages of
	// its partition. It is called by who publishes.
	Destination(m *Message) string
}

// destination returns where a message goes, empty where nothing may pass it.
func (s *Sink) destination(m *Message) string {
	if router, is := s.target.(Router); is && m.Op != OpLoss {
		return router.Destination(m)
	}
	return ""
}

// An order is what messages have in common that arrive in order.
type order struct {
	partition   change.Partition
	destination string
}

func (s *Sink) order(m *Message) order { return order{m.Partition, s.destination(m)} }

// refuse stops what the target has refused for good until an operator resumes the sink: what goes
// to the same destination if the target has several, else everything. Others are published
// meanwhile, as far as the credit of the session goes: nothing is acknowledged to the oplog before
// what waits.
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

// park has a message, and what comes after it and goes to the same destination, wait. Nothing is
// under way, and the caller holds the mutex. A later message of the partition that is over comes
// again after it.
func (s *Sink) park(first *Message, to string) {
	after := false
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			after = after || m == first
			if !after || s.destination(m) != to || m.state == over && m.Partition != first.Partition {
				continue
			}
			if m.state == over {
				f.left++
			}
			m.state = parked
		}
	}
}

// parks has a message wait if its destination does. The caller holds the mutex.
func (s *Sink) parks(m *Message) bool {
	if len(s.mu.parked) == 0 || s.mu.parked[s.destination(m)] == nil {
		return false
	}
	m.state = parked
	return true
}

// unpark lets what waits be published again. The caller holds the mutex.
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

// dropParked drops what waits of partitions that the node does not own any more. The caller holds
// the mutex.
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

// parkedError says what waits, nil if nothing does. The caller holds the mutex.
func (s *Sink) parkedError() error {
	var errs []error
	for _, to := range slices.Sorted(maps.Keys(s.mu.parked)) {
		errs = append(errs, s.mu.parked[to])
	}
	return errors.Join(errs...)
}
