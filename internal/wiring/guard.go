package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/document"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/internal/place"
	"github.com/mongostream/streamer/rescan"
)

// guardOpening makes the guard of openings of change streams. What MongoDB refuses for a reason is no failure of MongoDB.
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
	return !errors.Is(err, context.Canceled) && mongodb.Classify(err) == mongodb.Transient
}

// A guardedStore is a store of marks whose saves stop for a while when they fail.
type guardedStore struct {
	place.Store
	breaker *breaker.Breaker
}

// guardStore puts a breaker before what is written to the store while the node runs.
func (s *Service) guardStore() guardedStore {
	b := s.breakers.Breaker("marks_"+s.opts.Config.Reliability.Checkpoint.Backend, func(err error) bool {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, checkpoint.ErrFenced)
	})
	return guardedStore{Store: s.store, breaker: b}
}

// Save implements checkpoint.Store. A round counts as one failure when no mark of it could be saved or refused. The last marks of terms
// are always tried: there is no later.
func (g guardedStore) Save(ctx context.Context, marks []checkpoint.Mark) (results []error) {
	if slices.ContainsFunc(marks, func(m checkpoint.Mark) bool {
		return m.Reason == checkpoint.ReasonFinal || m.Reason == checkpoint.ReasonHandoff
	}) {
		return g.Store.Save(ctx, marks)
	}
	err := g.breaker.Do(func() error {
		results = g.Store.Save(ctx, marks)
		var failure error
		for _, err := range results {
			if err == nil || errors.Is(err, checkpoint.ErrFenced) {
				return nil
			}
			failure = err
		}
		return failure
	})
	if errors.Is(err, breaker.ErrOpen) {
		results = make([]error, len(marks))
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

// rescan says what is read again after a loss.
func (s *Service) rescan() rescan.Config {
	cfg := s.opts.Config.Rescan
	return rescan.Config{
		Collections: collections(cfg), PageSize: cfg.PageSize, Rate: cfg.Rate,
		Reader: documents{reader: document.NewReader(s.mongo), breaker: s.breakers.Breaker("rescan", away)},
	}
}

// collections reads what the configuration has checked: db.coll, or db.coll:field.
func collections(cfg config.Rescan) []rescan.Collection {
	all := make([]rescan.Collection, len(cfg.Collections))
	for i, text := range cfg.Collections {
		namespace, field, _ := strings.Cut(text, ":")
		db, coll, _ := strings.Cut(namespace, ".")
		all[i] = rescan.Collection{Namespace: change.Namespace{DB: db, Coll: coll}, UpdatedAt: field}
	}
	return all
}

// documents reads documents from MongoDB for rescans.
type documents struct {
	reader  *document.Reader
	breaker *breaker.Breaker
}

// Page implements rescan.Reader.
func (d documents) Page(ctx context.Context, r rescan.Request) (page rescan.Page, err error) {
	err = d.breaker.Do(func() (err error) {
		page.Documents, page.At, page.Last, err = d.reader.Page(ctx, document.Query{
			Namespace: r.Collection.Namespace, UpdatedAt: r.Collection.UpdatedAt, Since: r.Since, After: r.After, Limit: r.Limit,
		})
		return err
	})
	page.Done = len(page.Documents) < r.Limit
	return page, err
}
