package sink

import (
	"cmp"
	"context"
	"time"

	"github.com/mongostream/streamer/internal/wake"
)

// watch checks regularly whether the target acknowledges messages, until the context ends.
func (s *Sink) watch(ctx context.Context) {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.look(now)
		case <-ctx.Done():
			return
		}
	}
}

const (
	// LookEvery is the interval at which a sink checks its target.
	LookEvery = 500 * time.Millisecond
	// SilentAfter is how long a target that was never slower may acknowledge nothing before it
	// counts as silent. One that is slow has twice the time that it has taken of late, up to
	// Config.StallAfter.
	SilentAfter = 3 * time.Second
)

// elsewhere is how long after the last waiting change a sink still reports that its target
// acknowledges nothing. Later another node, to which the partitions have moved, knows more.
const elsewhere = 15 * time.Second

// look detects whether the sink is stalled, and since when its target is silent. The target has
// recovered when it has acknowledged a message, and not because no message waits: a resumed sink,
// or one whose partitions have moved away, shows nothing about its target.
func (s *Sink) look(now time.Time) {
	s.mu.Lock()
	waits := s.mu.failed || s.mu.underWay > 0
	stalled := waits && now.Sub(s.mu.moved) > s.cfg.StallAfter
	was := s.mu.stalled
	patience := min(max(SilentAfter, 2*s.mu.slow), s.cfg.StallAfter)
	silent := waits && !s.mu.failed && now.Sub(s.mu.moved) >= patience
	if (stalled || silent) && s.mu.silent.IsZero() {
		s.mu.silent = s.mu.moved
	}
	if waits {
		s.mu.waited = now
	} else if now.Sub(s.mu.waited) > elsewhere {
		s.mu.silent = time.Time{}
	}
	if _, is := s.due(now); is {
		wake.Notify(s.signal)
	}
	s.mu.Unlock()
	if stalled != was {
		s.hold(func() { s.mu.stalled = stalled })
	}
}

// The states of a sink.
const (
	Publishing = "publishing"
	Paused     = "paused"
	Halted     = "halted"
	Waiting    = "waiting" // for a destination that takes nothing, which it tries again by itself
	Stalled    = "stalled"
	Retrying   = "retrying"
)

// A Status is the status of a sink at this node.
type Status struct {
	Name       string `json:"sink"`
	Subscriber string `json:"subscriber"`
	State      string `json:"state"`
	// UnderWay counts messages that the target has not acknowledged.
	UnderWay int `json:"under_way"`
	// Published counts acknowledgements since the start, Retried counts repeated attempts,
	// DeadLetters counts dead letters.
	Published   uint64 `json:"published"`
	Retried     uint64 `json:"retried"`
	DeadLetters uint64 `json:"dead_letters"`
	// Error is the reason why it is halted, or the last failure while it retries.
	Error string `json:"error,omitempty"`
	// Silent is the time since which the target has acknowledged nothing although messages wait;
	// nil while it acknowledges, or refuses what waits for a destination, or the sink is halted.
	Silent *time.Time `json:"silent_since,omitempty"`
}

// Status returns the status of the sink.
func (s *Sink) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Name: s.cfg.Name, Subscriber: s.cfg.Subscriber, State: Publishing, UnderWay: s.mu.underWay,
		Published: s.published.Load(), Retried: s.retried.Load(), DeadLetters: s.dead.Load(),
	}
	var err error
	switch {
	case s.mu.halted != nil:
		st.State = Halted
		err = s.mu.halted
	case s.mu.paused:
		st.State = Paused
	case len(s.mu.parked) > 0:
		st.State, err = s.parkedState()
	case s.mu.stalled:
		st.State = Stalled
		err = s.mu.last
	case s.mu.failed:
		st.State = Retrying
		err = s.mu.last
	case s.mu.underWay == 0 || s.mu.silent.IsZero():
	case s.mu.last != nil:
		st.State = Retrying // it attempts again
	default:
		st.State = Stalled
	}
	if err != nil {
		st.Error = err.Error()
	}
	if silent := s.mu.silent; !silent.IsZero() && s.mu.halted == nil {
		st.Silent = &silent
		st.Error = cmp.Or(st.Error, errorText(s.mu.last))
	}
	return st
}

// errorText returns the text of an error, empty for none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
