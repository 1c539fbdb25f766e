package wiring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"mongostream/change"
	"mongostream/checkpoint"
	"mongostream/dedup"
	"mongostream/fault"
	"mongostream/gap"
	"mongostream/internal/config"
	"mongostream/internal/etcd"
	"mongostream/internal/etcd/council"
	"mongostream/internal/etcd/keyring"
	"mongostream/internal/etcd/owner"
	"mongostream/internal/mongodb"
	"mongostream/internal/mongodb/mark"
)

// A store is all that a node asks of the place where marks are kept.
type store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.OriginKeeper
	checkpoint.GapKeeper
	checkpoint.RowKeeper
}

// openMarks connects to the store of marks and makes sure that every mark in it can be read.
func (s *Service) openMarks(ctx context.Context) error {
	cfg := s.opts.Config
	switch cfg.Reliability.Checkpoint.Backend {
	case config.BackendMongo:
		marks := mark.NewStore(s.mongo, cfg.Marks.Database, cfg.Cluster.ID, cfg.Cluster.Partitions)
		s.store, s.keeper, s.owner = marks, marks, mark.NewOwner(s.mongo, marks)
	default:
		client, err := s.dialEtcd(ctx)
		if err != nil {
			return err
		}
		s.roster = council.New(client, council.Config{Partitions: cfg.Cluster.Partitions, ElectionTTL: cfg.Cluster.LeaseTTL})
		s.store, s.keeper, s.owner = etcd.NewStore(client, cfg.Cluster.Partitions), keyring.New(client), owner.NewRegistry(client)
		s.keepHistory(client)
	}
	if _, err := s.store.Origin(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return fmt.Errorf("read the origin: %w", err) // every mark would say the same
	}
	if _, err := s.store.List(ctx); err != nil {
		return fmt.Errorf("read the marks: %w", firstOf(err))
	}
	return nil
}

// dialEtcd connects to etcd.
func (s *Service) dialEtcd(ctx context.Context) (*etcd.Client, error) {
	cfg := s.opts.Config
	client, err := etcd.Dial(ctx, etcd.Config{
		Endpoints: cfg.Etcd.Endpoints, Prefix: cfg.Etcd.Prefix, Cluster: cfg.Cluster.ID, Username: cfg.Etcd.Username, Password: string(cfg.Etcd.Password),
		CAFile: cfg.Etcd.TLS.CAFile, CertFile: cfg.Etcd.TLS.CertFile, KeyFile: cfg.Etcd.TLS.KeyFile, DialTimeout: cfg.Etcd.DialTimeout,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() {
		if err := client.Close(); err != nil {
			s.logger.Warn("disconnect from etcd", "error", err)
		}
	})
	return client, nil
}

// firstOf returns the first of joined errors, with the number of the others: one is enough to act upon.
func firstOf(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 2 {
		return err
	}
	return fmt.Errorf("%w (and %d more like it)", joined.Unwrap()[0], len(joined.Unwrap())-1)
}

// findOrigin reads the origin, or writes it where this is the first start.
func (s *Service) findOrigin(ctx context.Context) error {
	source, err := s.mongo.Identity(ctx)
	if err != nil {
		return err
	}
	origin, err := s.store.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		origin, err = s.found(ctx, source)
	}
	if err != nil {
		return fmt.Errorf("find the origin: %w", err)
	}
	if !sameSource(origin.Source, source) {
		return fault.Newf(fault.MarkSource, "the marks of cluster %s are of %s, mongodb.uri leads to %s", s.opts.Config.Cluster.ID, origin.Source, source)
	}
	s.origin = origin
	return nil
}

// found writes the origin of a first start.
func (s *Service) found(ctx context.Context, source string) (checkpoint.Origin, error) {
	cfg := s.opts.Config
	o := checkpoint.Origin{
		Cluster: rand.Text(), Incarnation: 1, Partitions: cfg.Cluster.Partitions, Source: source, At: time.Now(), By: cfg.Node.ID,
	}
	var err error
	if o.Start, err = s.startTime(ctx); err != nil {
		return o, err
	}
	o, err = s.store.Found(ctx, o)
	if err == nil {
		s.logger.Info("first start: partitions without a mark begin here", "start", o.Start.String(), "start_from", cfg.StartFrom.String())
	}
	return o, err
}

// startTime turns start_from into an operation time.
func (s *Service) startTime(ctx context.Context) (change.Timestamp, error) {
	from := s.opts.Config.StartFrom
	switch {
	case from.Oldest:
		first, known, err := s.mongo.FirstEntry(ctx)
		if err == nil && !known {
			err = fault.Newf(fault.ConfigConflict, "start_from: beginning-of-oplog needs the right to read the oplog, which is missing here or does not exist on mongos: give a time")
		}
		return first, err
	case !from.At.IsZero():
		return change.Timestamp{T: uint32(from.At.Unix()), I: 1}, nil
	}
	now, err := s.mongo.Now(ctx)
	return now.Next(), err // everything after this moment
}

// sameSource reports whether two identities may be one deployment: where the id could not be read once, the names decide.
func sameSource(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
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

// A surveyor tells the node how far MongoDB's log goes.
type surveyor struct{ client *mongodb.Client }

// Survey implements survey.Surveyor.
func (s surveyor) Survey(ctx context.Context) (gap.Reach, error) {
	r, err := s.client.Reach(ctx)
	return gap.Reach{First: r.First, Last: r.Last, Majority: r.Majority, Slack: r.Slack}, err
}
