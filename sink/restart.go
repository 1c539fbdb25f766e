package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/internal/wake"
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

// enter sets the function that ends the present loop, nil if none runs.
func (s *Sink) enter(end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.restart = end
}

// Restart ends the loop with all messages under way and starts a new one with a new target: it
// publishes all unacknowledged messages again, in order. It does not wait, and has no effect on a
// loop that hangs.
func (s *Sink) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.restart != nil {
		s.mu.restart(errRestarted)
	}
}

// renew closes the target and opens it again. Messages that were under way, or waited for their
// destination, wait for another attempt: nothing new may overtake them.
func (s *Sink) renew(ctx context.Context) error {
	s.close()
	for failures := 1; ; failures++ {
		target, letters, err := s.cfg.Renew()
		if err == nil {
			s.target = target
			s.cfg.DeadLetter = letters
			break
		}
		s.cfg.Logger.Warn("restarting failed, it is repeated", "error", err)
		if err := backoff().Wait(ctx, failures); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.parked = nil
	for _, f := range s.mu.flights {
		for i, m := range f.messages {
			if m.state == over {
				continue
			}
			again := *m // late reports of the closed target concern the old copy
			again.state = waiting
			again.err = ErrEarlier
			f.messages[i] = &again
			m.flight = nil
			s.mu.failed = true
		}
	}
	s.mu.underWay = 0
	s.mu.faults++
	s.mu.step++
	s.stall()
	wake.Notify(s.signal)
	return nil
}

// Age returns how long the oldest received batch has made no progress, beyond the time that the
// target may take. It is 0 while the sink is paused or halted, and while it retries an unreachable
// target. Only one goroutine may call it.
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
