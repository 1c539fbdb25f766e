package inspect

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/place"
	"github.com/mongostream/streamer/internal/preflight"
)

// A survey finds out what the checks judge.
type survey struct {
	at     *place.Place
	outage time.Duration
	mongo  *mongodb.Client
	can    mongodb.Streams
	reach  mongodb.Reach
}

// The names of checks that others need.
const (
	checkMongo = "mongodb"
	checkRead  = "read_log"
	checkTry   = "resume"
	checkReach = "oplog"
	checkStore = "checkpoint_store"
	checkEtcd  = "etcd"
)

// Checks are the checks of what a configuration leads to, in the order in which they need each other. The outage is the longest that is
// to be survived without a loss. Nothing is written.
func Checks(at *place.Place, outage time.Duration) []preflight.Check {
	s := &survey{at: at, outage: outage}
	mongo := []string{checkMongo}
	checks := append(s.doors(), []preflight.Check{
		{Name: checkMongo, Find: s.reachMongo, Code: fault.MongoUnreachable},
		{Name: "version", Needs: mongo, Find: s.version, Code: fault.MongoRefused},
		{Name: checkRead, Needs: mongo, Find: s.readLog, Code: fault.MongoRefused},
		{Name: checkTry, Needs: []string{checkMongo, checkRead}, Find: s.streams, Code: fault.MongoRefused},
		{Name: "split", Needs: []string{checkMongo, checkTry}, Find: s.split},
		{Name: "images", Needs: mongo, Find: s.images, Code: fault.MongoRefused},
		{Name: checkReach, Needs: mongo, Find: s.oplog, Code: fault.MongoRefused},
		{Name: "majority", Needs: []string{checkMongo, checkReach}, Find: s.majority},
		{Name: "shards", Needs: mongo, Find: s.shards},
		{Name: "clock", Needs: mongo, Find: s.clock, Code: fault.MongoRefused},
		{Name: "connections", Needs: mongo, Find: s.connections, Code: fault.MongoRefused},
	}...)
	if s.etcd() {
		checks = append(checks,
			preflight.Check{Name: checkEtcd, Find: s.members, Code: fault.EtcdUnreachable},
			preflight.Check{Name: "compaction", Needs: []string{checkEtcd}, Find: s.compaction, Code: fault.EtcdRefused},
			preflight.Check{Name: checkStore, Needs: []string{checkEtcd}, Find: s.store, Code: fault.EtcdRefused})
	} else {
		checks = append(checks, preflight.Check{Name: checkStore, Needs: mongo, Find: s.store, Code: fault.MongoRefused})
	}
	return append(checks,
		preflight.Check{Name: "checkpoints", Needs: []string{checkMongo, checkReach, checkStore}, Find: s.checkpoints, Code: fault.CheckpointCorrupt})
}

func (s *survey) etcd() bool { return s.at.Config.Reliability.Checkpoint.Backend == config.BackendEtcd }

func (s *survey) reachMongo(ctx context.Context) (f preflight.Finding, err error) {
	if s.mongo, err = s.at.Mongo(ctx); err != nil {
		return f, err
	}
	identity, err := s.mongo.Identity(ctx)
	return preflight.Finding{Level: preflight.OK, Text: identity}, err
}

func (s *survey) version(ctx context.Context) (preflight.Finding, error) {
	text, err := mongodb.Version(ctx, s.mongo)
	return preflight.Version(text), err
}

func (s *survey) readLog(ctx context.Context) (preflight.Finding, error) {
	return preflight.Finding{Level: preflight.OK, Text: "the user may watch what is configured"}, s.at.Probe(ctx)
}

func (s *survey) streams(ctx context.Context) (f preflight.Finding, err error) {
	if s.can, err = mongodb.TryStreams(ctx, s.mongo, ""); fault.Of(err) == fault.MongoUnauthorized {
		s.can, err = mongodb.TryStreams(ctx, s.mongo, oneDatabase(s.at.Config.MongoDB.Watch))
	}
	return preflight.Streams(s.can.Progress, s.can.StartAfter), err
}

func (s *survey) split(context.Context) (preflight.Finding, error) {
	return preflight.Split(s.can.Split), nil
}

func (s *survey) images(ctx context.Context) (preflight.Finding, error) {
	cfg := s.at.Config
	judge := func(missing []string) preflight.Finding {
		return preflight.Images(cfg.MongoDB.FullDocument, cfg.MongoDB.FullDocumentBeforeChange, missing)
	}
	if f := judge([]string{""}); f.Level == preflight.OK {
		return f, nil // they are not asked for
	}
	missing, err := mongodb.WithoutImages(ctx, s.mongo, cfg.MongoDB.Watch, cfg.Marks.Database)
	return judge(missing), err
}

func (s *survey) oplog(ctx context.Context) (f preflight.Finding, err error) {
	if s.reach, err = s.mongo.Reach(ctx); err != nil {
		return f, err
	}
	log := preflight.Log{First: s.reach.First.Time(), Last: s.reach.Last.Time(), Readable: !s.reach.First.IsZero()}
	if log.Readable {
		size, most, known, err := mongodb.OplogSize(ctx, s.mongo)
		if err != nil {
			return f, err
		}
		if known {
			log.Size, log.MaxSize = size, most
		}
	}
	return preflight.Oplog(log, s.outage), nil
}

func (s *survey) majority(context.Context) (preflight.Finding, error) {
	return preflight.Majority(s.reach.Last.Time(), orZero(s.reach.Majority)), nil
}

// shards finds out whether shards can be asked to advance, without writing to them.
func (s *survey) shards(ctx context.Context) (preflight.Finding, error) {
	tick := s.at.Config.MongoDB.Tick
	var refused, configRefused error
	if s.mongo.Sharded() && tick > 0 {
		if _, refused = s.mongo.AdvanceShards(ctx, mongodb.ClusterTime{}); fault.Of(refused) == fault.MongoShards {
			refused = errors.Unwrap(refused) // the finding has the code
		}
		configRefused = s.mongo.AdvanceConfig(ctx, mongodb.ClusterTime{})
	}
	return preflight.Shards(s.mongo.Sharded(), tick, refused, configRefused), nil
}

// orZero is the time of a cluster time, and zero for none.
func orZero(t change.Timestamp) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Time()
}

func (s *survey) clock(ctx context.Context) (preflight.Finding, error) {
	server, sent, received, err := mongodb.Clock(ctx, s.mongo)
	return preflight.Clock(server, sent, received), err
}

func (s *survey) connections(ctx context.Context) (preflight.Finding, error) {
	available, known, err := mongodb.Connections(ctx, s.mongo)
	cfg := s.at.Config.MongoDB
	return preflight.Connections(cfg.MaxStreams, mongodb.PoolSize(string(cfg.URI)), available, known), err
}

func (s *survey) members(ctx context.Context) (f preflight.Finding, err error) {
	client, err := s.at.Etcd(ctx)
	if err != nil {
		return f, err
	}
	alarms, err := etcd.Alarms(ctx, client)
	if err != nil {
		return f, err
	}
	var members []preflight.Member
	for _, m := range etcd.EndpointStatuses(ctx, client) {
		members = append(members, preflight.Member{
			Endpoint: m.Endpoint, Version: m.Version, Leader: m.Leader, Size: m.Size, Quota: m.Quota, Err: m.Err,
		})
	}
	return preflight.Etcd(members, alarms), nil
}

func (s *survey) compaction(ctx context.Context) (f preflight.Finding, err error) {
	client, err := s.at.Etcd(ctx)
	if err != nil {
		return f, err
	}
	revision := int64(0)
	for _, m := range etcd.EndpointStatuses(ctx, client) {
		revision = max(revision, m.Revision)
	}
	first, err := etcd.HasRevision(ctx, client, 1)
	if err != nil {
		return f, err
	}
	many := false
	if revision > preflight.ManyRevisions {
		if many, err = etcd.HasRevision(ctx, client, revision-preflight.ManyRevisions); err != nil {
			return f, err
		}
	}
	return preflight.Compaction(revision, first, many), nil
}

// store finds out whether checkpoints can be written, without writing any.
func (s *survey) store(ctx context.Context) (f preflight.Finding, err error) {
	if err := s.at.OpenStore(ctx); err != nil {
		return f, err
	}
	cfg := s.at.Config
	if s.etcd() {
		client, err := s.at.Etcd(ctx)
		if err != nil {
			return f, err
		}
		return preflight.Finding{Level: preflight.OK, Text: "etcd: the user may write below " + cfg.Etcd.Prefix}, etcd.MayWrite(ctx, client)
	}
	for _, kind := range []string{".checkpoints", ".cluster", ".gaps"} {
		if err := mongodb.MayWrite(ctx, s.mongo, cfg.Marks.Database, cfg.Cluster.ID+kind); err != nil {
			return f, err
		}
	}
	return preflight.Finding{Level: preflight.OK, Text: "MongoDB: the user may write into " + cfg.Marks.Database}, nil
}

func (s *survey) checkpoints(ctx context.Context) (f preflight.Finding, err error) {
	_, err = s.at.Verify(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return preflight.Resuming(preflight.Checkpoints{}), nil
	}
	if err != nil {
		return f, err
	}
	origin, err := s.at.Store.Origin(ctx)
	if err != nil {
		return f, err
	}
	identity, err := s.mongo.Identity(ctx)
	if err != nil {
		return f, err
	}
	all, err := s.at.Store.List(ctx)
	if err != nil {
		return f, place.FirstOf(err)
	}
	found := preflight.Checkpoints{
		Created: true, Ours: origin.Of(identity), Origin: origin.Source, Source: identity,
		First: orZero(s.reach.First), Now: s.reach.Last.Time(), Slack: s.reach.Slack, Halt: s.at.Config.OnHistoryLost == "halt",
	}
	var latest change.Position
	for i, c := range all { // in the order of their subscribers
		if i == 0 || all[i-1].Subscriber != c.Subscriber || all[i-1].Shared != c.Shared {
			found.Subscribers++
		}
		latest = change.Later(latest, c.Position)
		for _, at := range c.Positions {
			latest = change.Later(latest, at)
		}
		at := c.Earliest().Time.Time()
		if c.Shared {
			found.Shared = append(found.Shared, at)
		} else {
			found.Exclusive = append(found.Exclusive, at)
		}
	}
	found.Latest = latest.Time.Time()
	return preflight.Resuming(found), nil
}

// oneDatabase returns the database of the first namespace that is watched: a user who may not watch the cluster watches one.
func oneDatabase(watch []string) string {
	if len(watch) == 0 {
		return ""
	}
	database, _, _ := strings.Cut(watch[0], ".")
	return database
}
