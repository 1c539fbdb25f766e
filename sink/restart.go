package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/delivery"
)

// errRestarted ends a loop that another one follows.
var errRestarted = fmt.Errorf("the sink is restarted: %w", context.Canceled)

// runLoops runs one loop after the other until the context ends, or a loop for another reason than
// a restart.
func (s *Sink) runLoops(ctx context.Context, received <-chan []*delivery.Batch) error {
	defer s.enter(nil)
	for {
		running, end := context.WithCancelCause(ctx)
		s.enter(end)
		err := s.run(running, received)
		end(nil)
		if !errors.Is(err, errRestarted) || ctx.Err() != nil {
			return err
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
		s.cfg.Logger.Warn("sink restarted: it publishes again what was not acknowledged")
	}
}

// enter says how the loop is ended that runs from now on, nil where none does.
func (s *Sink) enter(end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.restart = end
}

// Restart ends the loop with everything that is under way and begins it anew, with a new target:
// what was not acknowledged is published again, in order. It does not wait, and has no effect on a
// loop that does not come to the end of what it does.
func (s *Sink) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.restart != nil {
		s.mu.restart(errRestarted)
	}
}

// renew closes the target and opens it again. Whatever was under way waits for another attempt.
func (s *Sink) renew(ctx context.Context) error {
	s.close()
	for failures := 1; ; failures++ {
		target, letters, err := s.cfg.Renew()
		if err == nil {
			s.target, s.cfg.DeadLetter = target, letters
			break
		}
		s.cfg.Logger.Warn("restarting failed, it is repeated", "error", err)
		if err := backoff().Wait(ctx, failures); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.mu.flights {
		for i, m := range f.messages {
			if m.state == over || m.state == parked {
				continue
			}
			again := *m // what the closed target may still report of the other one is of no interest
			again.state, again.err = waiting, ErrEarlier
			f.messages[i], m.flight = &again, nil
			s.mu.failed = true
		}
	}
	s.mu.underWay = 0
	s.mu.step++
	notify(s.signal)
	return nil
}

// Age returns for how long nothing has become of the oldest batch that was received, beyond what
// the target may take. It is 0 while the sink is paused or halted, and while its target is away and
// attempts are made. It is for one goroutine.
func (s *Sink) Age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := s.mu.restart != nil && !s.mu.paused && s.mu.halted == nil && len(s.mu.parked) == 0 && len(s.mu.flights)+s.mu.backlog > 0
	grace := time.Duration(0)
	switch {
	case s.mu.failed:
		grace = s.cfg.AckTimeout + backoff().Longest
	case s.mu.underWay > 0:
		grace = s.cfg.AckTimeout
	}
	return max(s.steps.Age(s.mu.step, waits, time.Now())-grace, 0)
}
