package stream

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// A reader that loses a position opens another stream. If the server has lost that position too,
// new streams would follow without limit, because each knows nothing of the ones before. So each
// loss delays the source's next openings by MinReopen. The first MaxStreams losses are free,
// because one wrapped oplog is a loss for every stream. So are those that are known without an
// opening: many readers continue in the retained log.

// slowDown charges a loss with MinReopen.
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

// waitForPace waits until earlier losses no longer delay an opening.
func (s *Source) waitForPace(ctx context.Context) error {
	s.mu.Lock()
	wait := time.Until(s.mu.due.Add(-time.Duration(s.cfg.MaxStreams) * s.cfg.MinReopen))
	s.mu.Unlock()
	return retry.Sleep(ctx, wait)
}
