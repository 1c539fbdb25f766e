package sink

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/wake"
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
// operator resumes the sink.
func (s *Sink) refuse(m *Message, err error) {
	m.attempts = 0
	if to := s.destination(m); to == "" {
		s.halt(err)
	} else {
		s.suspend(to, m, closed{err: fmt.Errorf("what goes to %s waits: %w", to, err)})
	}
}

// wait stops publishing as refuse does, because nothing is wrong with the message: its destination
// takes nothing, or the dead letter could not be written. The sink tries it again by itself.
func (s *Sink) wait(m *Message, err error) {
	to := s.destination(m)
	err = fmt.Errorf("what goes to %s waits: %w", cmp.Or(to, "the target"), err)
	s.suspend(to, m, closed{err: err, due: time.Now().Add(tryEvery)})
}

// suspend closes a destination, from a message on that waits for it.
func (s *Sink) suspend(to string, m *Message, why closed) {
	s.hold(func() {
		if s.mu.parked == nil {
			s.mu.parked = make(map[string]closed)
		}
		switch {
		case why.due.IsZero():
			s.cfg.Logger.Warn("sink halted for a destination", "destination", to, "error", why.err)
		case !s.mu.parked[to].trying:
			s.cfg.Logger.Warn("what goes to a destination waits", "destination", to, "error", why.err)
		}
		s.mu.parked[to] = why
		s.mu.silent = time.Time{} // the target has answered
		s.mu.last = nil
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

// triesAgain reports whether a message is the first to a destination that is being tried again: a
// refusal closes it at once.
func (s *Sink) triesAgain(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.parked[s.destination(m)].trying
}

// due returns the destination that the sink should have tried again for longest, if there is one.
// The caller holds the mutex.
func (s *Sink) due(now time.Time) (name string, is bool) {
	for each, to := range s.mu.parked {
		isDue := !to.due.IsZero() && !to.trying && !now.Before(to.due)
		if isDue && (!is || to.due.Before(s.mu.parked[name].due)) {
			name = each
			is = true
		}
	}
	return name, is
}

// reopen releases what waits for the destination that is due, if nothing else has failed: one at a
// time, so that others get their changes in between. Only the loop calls it.
func (s *Sink) reopen(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, is := s.due(now)
	if !is || s.holds() {
		return
	}
	to := s.mu.parked[name]
	to.trying = true
	s.mu.parked[name] = to
	if s.mu.underWay == 0 {
		s.mu.moved = now
	}
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == parked && s.destination(m) == name {
				m.state = waiting
				m.err = ErrEarlier
				s.mu.failed = true
			}
		}
	}
}

// opened opens the destination that the sink has tried again, because nothing is left to publish
// again, and wakes the loop if another one is due. The caller holds the mutex.
func (s *Sink) opened() {
	before := len(s.mu.parked)
	maps.DeleteFunc(s.mu.parked, func(_ string, to closed) bool { return to.trying })
	if len(s.mu.parked) < before {
		s.stall()
	}
	if _, is := s.due(time.Now()); is && !s.mu.paused && s.mu.halted == nil {
		wake.Notify(s.signal)
	}
}

// unpark releases the waiting messages for publishing. The caller holds the mutex.
func (s *Sink) unpark() {
	s.mu.parked = nil
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == parked {
				m.state = waiting
				m.err = ErrEarlier
				m.attempts = 0
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

// parkedState returns the state of a sink with waiting destinations, and an error that names them,
// after that of a target that has been silent since. The caller holds the mutex.
func (s *Sink) parkedState() (state string, err error) {
	state = Waiting
	var errs []error
	if !s.mu.silent.IsZero() {
		errs = append(errs, s.mu.last)
	}
	for _, to := range slices.Sorted(maps.Keys(s.mu.parked)) {
		why := s.mu.parked[to]
		if why.due.IsZero() {
			state = Halted
		}
		errs = append(errs, why.err)
	}
	return state, errors.Join(errs...)
}
