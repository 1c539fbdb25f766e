package streamer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/retry"
)

// claim claims the checkpoints of terms. Those that cannot be read wait, until an operator repairs
// or removes them, and hold up no others: it returns the terms without them.
func (s *Shared) claim(ctx context.Context, terms []change.Term) ([]change.Term, []checkpoint.Checkpoint, error) {
	claimed, err := s.node.store.ClaimTerms(ctx, s.name, terms)
	unread, is := errors.AsType[*checkpoint.UnreadError](err)
	if !is {
		return terms, claimed, err
	}
	var readable []change.Term
	var found []checkpoint.Checkpoint
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.mu.unread)
	for i, t := range terms {
		cause := unread.Partitions[t.Partition]
		if cause == nil {
			readable, found = append(readable, t), append(found, claimed[i])
			continue
		}
		if before, told := s.mu.unread[t.Partition]; !told || before.Epoch != t.Epoch {
			s.node.logger.Warn("partition waits: its checkpoint cannot be read", "subscriber", s.name, "partition", t.Partition, "error", cause)
		}
		s.mu.unread[t.Partition] = t
		s.mu.unreadable = cause
	}
	if waiting == 0 {
		go s.awaitReadable() //nolint:contextcheck // it outlives the call
	}
	return readable, found, nil
}

// waiting returns why partitions wait for their checkpoints, nil if none does.
func (s *Shared) waiting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.unread) == 0 {
		return nil
	}
	return fmt.Errorf("nothing is taken of partitions %v, whose checkpoints cannot be read: %w", slices.Sorted(maps.Keys(s.mu.unread)), s.mu.unreadable)
}

// awaitReadable attaches the partitions whose checkpoints can be read again, until none waits.
func (s *Shared) awaitReadable() {
	wait := retry.Backoff{First: time.Second, Longest: 15 * time.Second}
	for attempt := 1; wait.Wait(s.node.lifetime, attempt) == nil; attempt++ {
		waits, err := s.attachReadable()
		if err != nil {
			s.node.logger.Warn("reading checkpoints again failed", "subscriber", s.name, "error", err)
		}
		if !waits {
			return
		}
	}
}

// attachReadable makes one attempt, and reports whether partitions wait.
func (s *Shared) attachReadable() (waits bool, err error) {
	n := s.node
	ctx, cancel := context.WithTimeout(n.lifetime, n.cfg.CheckpointTimeout)
	defer cancel()
	select {
	case n.serving <- struct{}{}: // terms come and go under it
		defer func() { <-n.serving }()
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	s.mu.Lock()
	terms := slices.SortedFunc(maps.Values(s.mu.unread), func(a, b change.Term) int { return int(a.Partition) - int(b.Partition) })
	s.mu.Unlock()
	terms = slices.DeleteFunc(terms, func(t change.Term) bool {
		c := n.consumer(t.Partition)
		return c == nil || c.term.Epoch != t.Epoch || t.Err() != nil
	})
	if len(terms) == 0 || s.session.Ended() {
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.mu.unread)
		return false, nil
	}
	err = s.attach(ctx, terms, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.unread) > 0, err
}
