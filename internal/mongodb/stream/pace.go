package stream

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// Who loses a position opens another stream, and a server that has lost that too would be asked
// again and again, each time by a new stream that knows nothing of those before. So each loss costs
// the source the least time between two openings. As many losses as there may be streams are free,
// because one wrapped log is a loss to each of them.

// slowDown lets a loss cost time.
func (s *Source) slowDown(err error) error {
	if errors.Is(err, oplog.ErrPositionLost) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		if s.mu.due.Before(now) {
			s.mu.due = now
		}
		s.mu.due = s.mu.due.Add(s.cfg.MinReopen)
	}
	return err
}

// waitForPace waits until a stream may be opened, as far as losses are concerned.
func (s *Source) waitForPace(ctx context.Context) error {
	s.mu.Lock()
	wait := time.Until(s.mu.due.Add(-time.Duration(s.cfg.MaxStreams) * s.cfg.MinReopen))
	s.mu.Unlock()
	return retry.Sleep(ctx, wait)
}
