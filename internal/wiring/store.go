package wiring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/sink/file"
	"github.com/mongostream/streamer/supervisor"
)

// openStore connects to the store of checkpoints.
func (s *Service) openStore(ctx context.Context) error {
	cfg := s.opts.Config
	conn := backend.New(cfg, cfg.Node.ID, s.logger)
	s.closers = append(s.closers, conn.Close)
	conn.UseMongo(s.mongo)
	if err := s.persist(ctx, conn.OpenStore); err != nil {
		return err
	}
	s.conn = conn
	s.store = conn.Store
	s.owner = conn.Owner
	s.roster = conn.Members()
	if conn.Roster != nil {
		client, err := conn.Etcd(ctx)
		if err != nil {
			return err
		}
		s.keepHistory(client)
		s.supervised = etcd.NewSupervisionStore(client, etcd.SupervisionConfig{Window: cfg.Supervisor.RestartWindow, Retention: cfg.Supervisor.ReportRetention})
	} else {
		s.supervised = supervisor.NewMemory(cfg.Supervisor.RestartWindow)
	}
	return s.persist(ctx, func(ctx context.Context) error {
		if _, err := s.store.Origin(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
			return fmt.Errorf("read the origin: %w", err) // every checkpoint would say the same
		}
		return nil
	})
}

// accept checks everything that can prevent a start, before anything is written: a refused start
// must leave no origin, because the origin would fix where the cluster begins before the
// configuration is corrected.
func (s *Service) accept(ctx context.Context) error {
	cfg := s.opts.Config
	if _, err := s.vitalsTransport(); err != nil {
		return err
	}
	var now change.Timestamp
	err := s.persist(ctx, func(ctx context.Context) (err error) {
		now, err = s.mongo.Now(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := refuseFuture("start_from", cfg.StartFrom.At, now); err != nil {
		return err
	}
	for _, collection := range cfg.Rescan.Collections {
		if err := backend.CheckCovered(cfg, collection); err != nil {
			return fmt.Errorf("rescan.collections: %w", err)
		}
	}
	for _, c := range cfg.Sinks {
		key := "start of sink " + c.Name
		if err := refuseFuture(key, c.Start.At, now); err != nil {
			return err
		}
		if c.Start.Oldest {
			if err := s.persist(ctx, func(ctx context.Context) error { return s.refuseHidden(ctx, key, c.Subscriber()) }); err != nil {
				return err
			}
		}
		if _, err := backend.Subscriptions(c, cfg); err != nil {
			return err
		}
		target, letters, err := backend.Targets(c, "", cfg.Cluster.Partitions, file.NewOutput(s.opts.Stdout))
		if err != nil {
			return err
		}
		target.Close()
		if letters != nil {
			letters.Close()
		}
	}
	return nil
}

// refuseFuture returns the fault of a start that MongoDB has not reached, nil for the zero time,
// because nothing would arrive without a visible reason.
func refuseFuture(key string, at time.Time, now change.Timestamp) error {
	if ahead := at.Sub(now.Time()); !at.IsZero() && ahead > config.FutureSlack {
		return fault.Newf(fault.ConfigBadValue, "%s: %s is %s ahead of MongoDB: give a time of the past, in UTC or with its offset",
			key, at.Format(time.RFC3339), ahead.Round(time.Second))
	}
	return nil
}

// refuseHidden returns the fault of a sink that should begin with the oldest change if that cannot
// be found, because the sink would never be served. A sink that has begun does not need it, nor
// does one of an adopted or repartitioned cluster, which begins at the origin.
func (s *backends) refuseHidden(ctx context.Context, key, subscriber string) error {
	_, cause := s.oldest(ctx, key)
	if fault.Of(cause) != fault.LogHidden {
		return cause
	}
	origin, err := s.store.Origin(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoOrigin):
		return cause
	case err != nil:
		return fmt.Errorf("read the origin: %w", err)
	case origin.Incarnation > 1:
		return nil
	}
	begun, err := s.store.Load(ctx, subscriber)
	if len(begun) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read where %s begins: %w", subscriber, err)
	}
	return cause
}

// oldest returns the time of the oplog's oldest entry, for a key of the configuration that asks to
// begin there. Where it cannot be known that is the fault LogHidden.
func (s *backends) oldest(ctx context.Context, key string) (change.Timestamp, error) {
	first, known, err := s.mongo.FirstEntry(ctx)
	if err == nil && !known {
		err = fault.Newf(fault.LogHidden, "%s: the oldest change cannot be found: the user may not read the oplog, or MongoDB is reached through mongos: give a time", key)
	}
	return first, err
}

// findOrigin reads the origin, or writes it where this is the first start.
func (s *Service) findOrigin(ctx context.Context) error {
	cfg := s.opts.Config
	first := checkpoint.Origin{
		Cluster: rand.Text(), Incarnation: 1, Partitions: cfg.Cluster.Partitions, IDFormat: change.LatestIDFormat, At: time.Now(), By: cfg.Node.ID,
	}
	err := s.persist(ctx, func(ctx context.Context) (err error) {
		if first.Source, err = s.mongo.Identity(ctx); err != nil {
			return err
		}
		s.origin, err = s.conn.EnsureOrigin(ctx, first.Source, func(ctx context.Context) (o checkpoint.Origin, err error) {
			first.Start, err = s.startTime(ctx)
			return first, err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("find the origin: %w", err)
	}
	s.log.UseIDFormat(s.origin.IDFormat)
	if s.origin.Cluster == first.Cluster {
		s.logger.Info("first start: shared subscribers without a checkpoint begin here", "start", s.origin.Start.String(), "start_from", cfg.StartFrom.String())
		return nil
	}
	if at := cfg.StartFrom.At; !at.IsZero() && at.Sub(s.origin.Start.Time()).Abs() > config.FutureSlack {
		s.logger.Warn("start_from has no effect: the cluster began elsewhere, at its first start or when it was adopted",
			"start_from", cfg.StartFrom.String(), "began", s.origin.Start.Time().Format(time.RFC3339),
			"remedy", "move a subscriber by `streamer subscribers rewind NAME --to TIME`, or the cluster by `streamer cluster adopt --to TIME`")
	}
	return nil
}

// startTime turns start_from into an operation time.
func (s *Service) startTime(ctx context.Context) (change.Timestamp, error) {
	from := s.opts.Config.StartFrom
	switch {
	case from.Oldest:
		first, err := s.oldest(ctx, "start_from")
		if err != nil {
			return first, err
		}
		return s.log.Earliest(ctx, first)
	}
	now, err := s.mongo.Now(ctx)
	if !from.At.IsZero() {
		return gap.Reach{Last: now}.At(from.At), err
	}
	return now.Next(), err // everything after this moment
}

// maxGap is the jump of cluster time that counts; turned off, none does.
func maxGap(cfg config.GapDetection) time.Duration {
	if !cfg.Enabled {
		return math.MaxInt64
	}
	return cfg.MaxGap
}

func dedupConfig(cfg config.Dedup) *dedup.Config {
	if !cfg.Enabled {
		return nil
	}
	return &dedup.Config{Size: cfg.CacheSize, TTL: cfg.TTL}
}

// reach asks MongoDB how far its oplog goes.
func (s *Service) reach(ctx context.Context) (gap.Reach, error) {
	r, err := s.mongo.Reach(ctx)
	if err != nil {
		return gap.Reach{}, err
	}
	reach := gap.Reach{First: r.First, Last: r.Last, Majority: r.Majority, Slack: r.Slack, Growing: s.mongo.Growing(ctx)}
	return s.retained.extend(reach), nil
}
