package wiring

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/retention"
)

// A retained is the node's view of the log beyond the oplog. Its zero value has none.
type retained struct {
	chain  atomic.Pointer[retention.Chain] // nil before the origin is known
	source *retention.Source
	writer *retention.Writer
	extent atomic.Pointer[retention.Extent]
	limits config.Retention
}

// extend returns the reach of the oplog with that of the retained log before it.
func (r *retained) extend(reach gap.Reach) gap.Reach {
	extent := r.extent.Load()
	if extent == nil {
		return reach
	}
	return extent.Extend(reach, r.limits.MaxAge, r.limits.MaxBytes)
}

// A readable is MongoDB for operators: its log begins where the retained one does.
type readable struct {
	*mongodb.Client

	retained *retained // nil if other nodes do not have it
}

var _ admin.Retainer = readable{}

// readable returns the log for operators. A folder is one node's alone, and operators ask any node
// about subscribers of all.
func (s *Service) readable() readable {
	if !backend.RetainedByAll(s.opts.Config) {
		return readable{Client: s.mongo}
	}
	return readable{s.mongo, &s.retained}
}

// Extend implements admin.Retainer.
func (r readable) Extend(oplog gap.Reach) gap.Reach {
	if r.retained == nil {
		return oplog
	}
	return r.retained.extend(oplog)
}

// trouble returns why the log is not retained, or not read, and since when.
func (r *retained) trouble() (since time.Time, err error) {
	if r.writer == nil {
		return time.Time{}, nil
	}
	since, err = r.writer.Trouble()
	switch {
	case errors.Is(err, retention.ErrHistory):
		return since, fault.New(fault.RetentionHistory, err)
	case err == nil:
		since, err = r.source.Trouble()
	}
	return since, err
}

func (s *Service) coverage() retention.Coverage {
	w := backend.Watch(s.opts.Config)
	return retention.Coverage{Coverage: w.Coverage(), FullDocument: w.FullDocument, BeforeChange: w.BeforeChange}
}

// retainedSource returns the source of the log: MongoDB, and the retained log if there is one.
func (s *Service) retainedSource() oplog.Source {
	if s.opts.Config.Retention.Store == "" {
		return s.source
	}
	s.retained.source = retention.NewSource(retention.SourceConfig{
		Coverage: s.coverage(), Keep: backend.Watch(s.opts.Config).Exact(), Reach: s.extent.Recently,
		CacheBytes: s.opts.Config.MongoDB.RingSize / 4, Logger: s.logger, Registerer: s.registry,
	}, s.source, s.retained.chain.Load)
	return s.retained.source
}

// openRetention prepares the retained log. Whether its store can be opened is the writer's trouble:
// delivery does not depend on it.
func (s *Service) openRetention(ctx context.Context) error {
	cfg := s.opts.Config
	if cfg.Retention.Store == "" {
		return nil
	}
	store, err := backend.OpenRetained(cfg.Retention.Store)
	if err != nil {
		return fault.New(fault.ConfigBadValue, err)
	}
	s.closers = append(s.closers, func() { _ = store.Close() })
	chain := backend.Chain(store, s.origin)
	s.retained.writer = retention.NewWriter(retention.WriterConfig{
		Node: cfg.Node.ID, Version: s.opts.Version, Coverage: s.coverage(), Interval: cfg.Retention.Interval, Window: s.oplogLength,
		Shared: backend.SharedStore(cfg.Retention.Store), Rank: s.rank,
		MaxAge: cfg.Retention.MaxAge, MaxBytes: cfg.Retention.MaxBytes, Logger: s.logger, Registerer: s.registry,
	}, chain, s.log)
	s.retained.limits = cfg.Retention
	s.retained.chain.Store(chain)
	looking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	s.lookAtRetained(looking)
	return nil
}

// lookAtRetained looks how far the retained log goes. If the store does not answer, the last known
// extent remains.
func (s *reading) lookAtRetained(ctx context.Context) {
	if extent, err := s.retained.chain.Load().Extent(ctx); err == nil {
		s.retained.extent.Store(&extent)
	}
}

// auditRetained writes into the audit log the operators' actions on the retained log that bypassed
// the nodes. Of several nodes with one log the first one does. An action stays in the store until
// it is in the history. One that cannot be removed is not written again while the audit log has it,
// by whichever node.
func (s *Service) auditRetained(ctx context.Context) {
	if backend.SharedStore(s.opts.Config.Retention.Store) && s.rank() > 0 {
		return
	}
	chain := s.retained.chain.Load()
	actions, err := chain.Actions(ctx)
	for _, a := range actions {
		n := admin.OperatedNotice(a.By, a.Command, a.Arguments)
		n.At = a.At
		if !s.onBoard(n) {
			s.board.Post(n)
		}
	}
	if len(actions) > 0 && s.channels.recorded(ctx) != nil {
		return // the node stops, or the notice was dropped: it is posted again
	}
	for _, a := range actions {
		err = cmp.Or(err, chain.ForgetAction(ctx, a))
	}
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("moving operators' actions on the retained log into the audit log failed; the next attempt follows", "error", err)
	}
}

// onBoard reports whether the board has a notice of that time and text.
func (s *Service) onBoard(n notice.Notice) bool {
	all, _ := s.board.Since(0)
	return slices.ContainsFunc(all, func(other notice.Notice) bool {
		return other.Kind == n.Kind && other.At.Equal(n.At) && other.Text == n.Text
	})
}

// rank returns the node's place among those that may continue the retained log of another node: the
// leader is the first one, and the others follow by their names.
func (s *Service) rank() (rank int) {
	if s.member == nil || s.member.Leads() {
		return 0
	}
	view, _ := s.member.View()
	rank = 1
	for _, m := range view.Members {
		if m.Kind == cluster.KindNode && m.Node < s.opts.Config.Node.ID {
			rank++
		}
	}
	return rank
}

// oplogLength returns the length of the oplog, zero if unknown.
func (s *reading) oplogLength() time.Duration {
	reach, known := s.extent.Latest(time.Now())
	if !known {
		return 0
	}
	return reach.Length()
}

// runRetention writes the retained log, and looks how far it goes, until the context ends.
func (s *Service) runRetention(ctx context.Context) {
	if s.retained.writer == nil {
		return
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		if err := s.retained.writer.Run(ctx); err != nil {
			s.logger.Error("the log is not retained any more", "error", err, "code", fault.RetentionHistory)
		}
	})
	writing.Go(func() { // it waits for etcd, which the log does not
		for ctx.Err() == nil {
			s.auditRetained(ctx)
			_ = retry.Sleep(ctx, s.betweenLooks())
		}
	})
	for {
		s.lookAtRetained(ctx)
		wait := s.betweenLooks()
		if s.retained.extent.Load() == nil {
			wait = time.Second
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// betweenLooks returns the time between two looks at the store.
func (s *Service) betweenLooks() time.Duration {
	wait := s.retained.writer.Interval()
	if !backend.SharedStore(s.opts.Config.Retention.Store) { // each look at a bucket costs some lists
		wait /= 2
	}
	return wait
}
