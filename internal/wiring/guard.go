package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/stream"
)

// guardOpening makes the guard of openings of change streams. A justified refusal is not a failure
// of MongoDB.
func (s *Service) guardOpening() func(func() error) error {
	b := s.breakers.Breaker("mongodb_open", away)
	return func(open func() error) error {
		err := b.Do(open)
		if errors.Is(err, breaker.ErrOpen) {
			return fmt.Errorf("%w: %w", stream.ErrNotTried, err)
		}
		return err
	}
}

// away reports whether MongoDB cannot be worked with for now.
func away(err error) bool {
	return !errors.Is(mongodb.AsFault(err), context.Canceled) && mongodb.Classify(err) == mongodb.Transient
}

// A guardedStore is a store whose saves stop for a while when they fail.
type guardedStore struct {
	backend.Store
	breaker *breaker.Breaker
}

// guardStore puts a circuit breaker before the node's writes to the store.
func (s *Service) guardStore() guardedStore {
	b := s.breakers.Breaker("checkpoints_"+s.opts.Config.Reliability.Checkpoint.Backend, func(err error) bool {
		return checkpoint.KindOf(err) == checkpoint.StoresOwn
	})
	return guardedStore{Store: s.store, breaker: b}
}

// Save implements checkpoint.Store. A round counts as one failure when the store failed for some of
// its checkpoints and answered for none: of one that cannot be encoded it has not heard. The last
// checkpoints of sessions and terms are always tried: there is no later.
func (g guardedStore) Save(ctx context.Context, checkpoints []checkpoint.Checkpoint) (results []error) {
	if slices.ContainsFunc(checkpoints, func(c checkpoint.Checkpoint) bool {
		return c.Reason == checkpoint.ReasonFinal || c.Reason == checkpoint.ReasonHandoff
	}) {
		return g.Store.Save(ctx, checkpoints)
	}
	err := g.breaker.Do(func() error {
		results = g.Store.Save(ctx, checkpoints)
		var failure error
		for _, err := range results {
			switch checkpoint.KindOf(err) {
			case checkpoint.NoFailure, checkpoint.CallersOwn:
				return nil
			case checkpoint.RowsOwn:
			case checkpoint.StoresOwn:
				failure = err
			}
		}
		return failure
	})
	if errors.Is(err, breaker.ErrOpen) {
		results = make([]error, len(checkpoints))
		for i := range results {
			results[i] = err
		}
	}
	return results
}

// AddGap implements checkpoint.GapKeeper.
func (g guardedStore) AddGap(ctx context.Context, gap checkpoint.Gap) error {
	return g.breaker.Do(func() error { return g.Store.AddGap(ctx, gap) })
}
