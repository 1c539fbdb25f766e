package wiring

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/retry"
)

// passesWithin is how many times as long as for a server a start waits for one that answers and
// cannot serve yet: an election, a router that does not find its shards, or a restart takes minutes
// at most.
const passesWithin = 4

// persist repeats a step of the start, which can be repeated, while MongoDB answers with errors
// that pass by themselves, and logs each reason once. It returns the last error when that takes too
// long.
func (s *Service) persist(ctx context.Context, step func(context.Context) error) error {
	longest := passesWithin * s.opts.Config.MongoDB.ServerSelectionTimeout
	until := time.Now().Add(longest)
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 5 * time.Second}
	reason := ""
	for failures := 1; ; failures++ {
		err := step(ctx)
		if err == nil || !mongodb.Waits(err) || time.Now().After(until) {
			return err
		}
		if text := err.Error(); text != reason {
			reason = text
			s.logger.Warn("MongoDB does not serve yet; waiting for it", "error", err, "at_most", longest)
		}
		if backoff.Wait(ctx, failures) != nil {
			return err
		}
	}
}
