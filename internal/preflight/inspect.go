package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/retention"
)

// An inspector collects the facts for the checks.
type inspector struct {
	conn   *backend.Conn
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

// checks returns the checks of a configuration's services, in the order of their dependencies.
// outage is the longest outage that must be survived without a loss. They write nothing, except
// small objects in a bucket of the retained log, which they delete.
func checks(conn *backend.Conn, source Source, outage time.Duration) []check {
	s := &inspector{conn: conn, outage: outage}
	mongo := []string{checkMongo}
	checks := append(closure{cfg: conn.Config, secrets: source.Secrets, where: source.Where, unused: source.Unused}.checks(), inLane(laneMongo, []check{
		{Name: checkMongo, run: s.reachMongo, Code: fault.MongoUnreachable},
		{Name: "version", Needs: mongo, run: s.version, Code: fault.MongoRefused},
		{Name: checkRead, Needs: mongo, run: s.readLog, Code: fault.MongoRefused},
		{Name: checkTry, Needs: []string{checkMongo, checkRead}, run: s.streams, Code: fault.MongoRefused},
		{Name: "namespaces", Needs: mongo, run: s.namespaces, Code: fault.MongoRefused},
		{Name: "split", Needs: []string{checkMongo, checkTry}, run: s.split},
		{Name: "images", Needs: mongo, run: s.images, Code: fault.MongoRefused},
		{Name: checkReach, Needs: mongo, run: s.oplog, Code: fault.MongoRefused},
		{Name: "majority", Needs: []string{checkMongo, checkReach}, run: s.majority},
		{Name: "shards", Needs: mongo, run: s.shards},
		{Name: "clock", Needs: mongo, run: s.clock, Code: fault.MongoRefused},
		{Name: "connections", Needs: mongo, run: s.connections, Code: fault.MongoRefused},
	})...)
	if s.etcd() {
		checks = append(checks, inLane(laneEtcd, []check{
			{Name: checkEtcd, run: s.members, Code: fault.EtcdUnreachable},
			{Name: "compaction", Needs: []string{checkEtcd}, run: s.compaction, Code: fault.EtcdUnreachable},
			{Name: checkStore, Needs: []string{checkEtcd}, run: s.store, Code: fault.EtcdUnreachable},
		})...)
	} else {
		checks = append(checks, check{Name: checkStore, Lane: laneMongo, Needs: mongo, run: s.store, Code: fault.MongoRefused})
	}
	for _, sink := range conn.Config.Sinks {
		checks = append(checks, check{Name: "sink " + sink.Name, Lane: "sink " + sink.Name, Code: fault.SinkTarget, run: func(ctx context.Context) (finding, error) {
			return reachSink(ctx, sink, conn.Config.Cluster)
		}})
	}
	if cfg := conn.Config.Retention; cfg.Store != "" {
		checks = append(checks, check{Name: "retention", Lane: "retention", Code: fault.RetentionStore, Optional: true, run: func(ctx context.Context) (finding, error) {
			ctx, cancel := context.WithTimeout(ctx, retainedTimeout)
			defer cancel()
			if backend.SharedStore(cfg.Store) {
				return reachBucket(ctx, cfg.Store)
			}
			return reachFolder(ctx, cfg.Store)
		}})
	}
	return append(append(checks, receivers(conn.Config)...),
		check{Name: "checkpoints", Lane: laneMongo, Needs: []string{checkMongo, checkReach, checkStore}, run: s.checkpoints, Code: fault.CheckpointCorrupt})
}

// The lanes of the checks that ask a server; those of the configuration are in the lane without a
// name.
const (
	laneMongo = "mongodb"
	laneEtcd  = "etcd"
)

// inLane puts checks into a lane.
func inLane(lane string, checks []check) []check {
	for i := range checks {
		checks[i].Lane = lane
	}
	return checks
}

// sinkTimeout bounds how long the target of a sink may take to answer.
const sinkTimeout = 10 * time.Second

// reachSink reaches the target of a sink and that of its dead letters, with the settings and the
// rights of a node, and publishes nothing.
func reachSink(ctx context.Context, cfg config.Sink, cluster config.Cluster) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	target, letters, err := backend.Targets(cfg, cluster.ID, cluster.Partitions, nil)
	if err != nil {
		return f, err
	}
	defer target.Close()
	found, err := target.Check(ctx)
	if err != nil {
		return f, err
	}
	text := cmp.Or(found, "answers")
	if letters != nil {
		defer letters.Close()
		if found, err = letters.Check(ctx); err != nil {
			return f, fmt.Errorf("dead letters: %w", err)
		}
		text += "; dead letters: " + cmp.Or(found, "answers")
	}
	return fine("%s: %s", cfg.Type, text), nil
}

// retainedTimeout bounds the check of the store of the retained log.
const retainedTimeout = 20 * time.Second

// reachBucket checks whether nodes can retain their log in a bucket.
func reachBucket(ctx context.Context, url string) (f finding, err error) {
	store, err := backend.OpenRetained(url)
	if err != nil {
		return f, err
	}
	defer store.Close() //nolint:errcheck // only asked
	versioned, err := retention.ChainAt(store, "v1/check").Probe(ctx)
	if err != nil {
		return f, err
	}
	if versioned {
		return finding{Level: Warn, Code: fault.RetentionVersions, Text: "the bucket keeps versions of what is deleted"}, nil
	}
	return fine("creates an object only once, and deletes it; %s", describeRetained(ctx, store)), nil
}

// reachFolder checks whether a node of this user can retain its log in a folder. It writes nothing.
func reachFolder(ctx context.Context, url string) (f finding, err error) {
	folder, err := retention.FolderOf(url)
	if err != nil {
		return f, err
	}
	found, err := retention.CheckFolder(ctx, folder)
	if err != nil {
		return f, err
	}
	if !found {
		return fine("%s is missing, and a node makes it", folder), nil
	}
	store, err := backend.ReadRetained(url)
	if err != nil {
		return f, err
	}
	return fine("this user may write into %s; %s", folder, describeRetained(ctx, store)), nil
}

// describeRetained describes the segments in a store, or says why it cannot: there may be more than
// can be listed in the time of a check, and a node can use them nevertheless.
func describeRetained(ctx context.Context, store backend.Retained) string {
	text, err := countRetained(ctx, store)
	if err != nil {
		return fmt.Sprintf("its segments were not counted: %s", err)
	}
	return text
}

func countRetained(ctx context.Context, store backend.Retained) (string, error) {
	chains, err := store.Chains(ctx)
	if err != nil {
		return "", err
	}
	segments := 0
	bytes := int64(0)
	oldest := time.Now()
	for _, chain := range chains {
		all, err := retention.ChainAt(store, chain).Segments(ctx)
		if err != nil {
			return "", err
		}
		segments += len(all)
		for _, s := range all {
			bytes += s.Size
			if s.Modified.Before(oldest) {
				oldest = s.Modified
			}
		}
	}
	if segments == 0 {
		return "no segments yet", nil
	}
	return fmt.Sprintf("%d retained logs, %d segments, %d MiB, the oldest one written %s ago", len(chains), segments, (bytes+1<<20-1)>>20, rounded(time.Since(oldest))), nil
}

func (s *inspector) etcd() bool {
	return s.conn.Config.Reliability.Checkpoint.Backend == config.BackendEtcd
}

func (s *inspector) reachMongo(ctx context.Context) (f finding, err error) {
	if s.mongo, err = s.conn.Mongo(ctx); err != nil {
		return f, err
	}
	identity, err := s.mongo.Identity(ctx)
	if err != nil || !s.mongo.Direct() {
		return finding{Level: OK, Text: identity}, err
	}
	others, err := s.mongo.Members(ctx)
	return judgeDirect(identity, others), err
}

func (s *inspector) version(ctx context.Context) (finding, error) {
	text, err := mongodb.Version(ctx, s.mongo)
	return judgeVersion(text), err
}

func (s *inspector) readLog(ctx context.Context) (finding, error) {
	return finding{Level: OK, Text: "the user may watch what is configured"}, s.conn.Probe(ctx)
}

func (s *inspector) streams(ctx context.Context) (f finding, err error) {
	if s.can, err = mongodb.TryStreams(ctx, s.mongo, ""); fault.Of(err) == fault.MongoUnauthorized {
		s.can, err = mongodb.TryStreams(ctx, s.mongo, oneDatabase(s.conn.Config.MongoDB.Watch))
	}
	return judgeStreams(s.can.Progress, s.can.StartAfter), err
}

func (s *inspector) split(context.Context) (finding, error) {
	return judgeSplit(s.can.Split), nil
}

// namespaces checks the namespaces of the configuration.
func (s *inspector) namespaces(ctx context.Context) (finding, error) {
	cfg := s.conn.Config
	documents := mongodb.NewDocuments(s.mongo, nil)
	named := slices.Concat(cfg.MongoDB.Watch, cfg.Rescan.Collections)
	for _, sink := range cfg.Sinks {
		for _, sub := range sink.Subscriptions {
			named = append(named, sub.Namespace)
		}
	}
	slices.Sort(named)
	kinds := make(map[change.NamespaceKind][]string)
	for _, name := range slices.Compact(named) {
		if name == "" {
			continue
		}
		kind, err := documents.Kind(ctx, backend.Namespace(name))
		if err != nil {
			return finding{}, fmt.Errorf("look at %s: %w", name, err)
		}
		kinds[kind] = append(kinds[kind], name)
	}
	return judgeNamespaces(kinds), nil
}

func (s *inspector) images(ctx context.Context) (finding, error) {
	cfg := s.conn.Config
	judge := func(missing []string) finding {
		return judgeImages(cfg.MongoDB.FullDocument, cfg.MongoDB.FullDocumentBeforeChange, missing)
	}
	if f := judge([]string{""}); f.Level == OK {
		return f, nil // they are not asked for
	}
	missing, err := mongodb.WithoutImages(ctx, s.mongo, cfg.MongoDB.Watch, cfg.Reliability.Checkpoint.Database)
	return judge(missing), err
}

func (s *inspector) oplog(ctx context.Context) (f finding, err error) {
	if s.reach, err = s.mongo.Reach(ctx); err != nil {
		return f, err
	}
	log := oplogFacts{First: s.reach.First.Time(), Last: s.reach.Last.Time(), Readable: !s.reach.First.IsZero(), Oldest: s.conn.Config.Oldest()}
	if log.Readable {
		size, most, known, err := mongodb.OplogSize(ctx, s.mongo)
		if err != nil {
			return f, err
		}
		if known {
			log.Size = size
			log.MaxSize = most
		}
	}
	return judgeOplog(log, s.outage), nil
}

func (s *inspector) majority(context.Context) (finding, error) {
	return judgeMajority(s.reach.Last.Time(), orZero(s.reach.Majority)), nil
}

// shards finds out whether shards can be asked to advance, without writing to them.
func (s *inspector) shards(ctx context.Context) (finding, error) {
	tick := s.conn.Config.MongoDB.Tick
	var refused, configRefused error
	if s.mongo.Sharded() && tick > 0 {
		if _, refused = s.mongo.AdvanceShards(ctx, mongodb.ClusterTime{}); fault.Of(refused) == fault.MongoShards {
			refused = errors.Unwrap(refused) // the finding has the code
		}
		configRefused = s.mongo.AdvanceConfig(ctx, mongodb.ClusterTime{})
	}
	return judgeShards(s.mongo.Sharded(), tick, refused, configRefused), nil
}

// orZero is the time of a cluster time, and zero for none.
func orZero(t change.Timestamp) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Time()
}

func (s *inspector) clock(ctx context.Context) (finding, error) {
	server, sent, received, err := mongodb.Clock(ctx, s.mongo)
	return judgeClock(server, sent, received), err
}

func (s *inspector) connections(ctx context.Context) (finding, error) {
	available, known, err := mongodb.Connections(ctx, s.mongo)
	cfg := s.conn.Config.MongoDB
	return judgeConnections(cfg.MaxStreams, available, known), err
}

func (s *inspector) members(ctx context.Context) (f finding, err error) {
	client, err := s.conn.Etcd(ctx)
	if err != nil {
		return f, err
	}
	alarms, err := etcd.Alarms(ctx, client)
	if err != nil {
		return f, err
	}
	var members []etcdMember
	for _, m := range etcd.EndpointStatuses(ctx, client) {
		members = append(members, etcdMember{
			Endpoint: m.Endpoint, Version: m.Version, Leader: m.Leader, Size: m.Size, Quota: m.Quota, Err: m.Err,
		})
	}
	return judgeEtcd(members, alarms), nil
}

func (s *inspector) compaction(ctx context.Context) (f finding, err error) {
	client, err := s.conn.Etcd(ctx)
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
	if revision > manyRevisions {
		if many, err = etcd.HasRevision(ctx, client, revision-manyRevisions); err != nil {
			return f, err
		}
	}
	return judgeCompaction(revision, first, many), nil
}

// store finds out whether checkpoints can be written, without writing any.
func (s *inspector) store(ctx context.Context) (f finding, err error) {
	if err := s.conn.OpenStore(ctx); err != nil {
		return f, err
	}
	cfg := s.conn.Config
	if s.etcd() {
		client, err := s.conn.Etcd(ctx)
		if err != nil {
			return f, err
		}
		return finding{Level: OK, Text: "etcd: the user may write below " + cfg.Etcd.Prefix}, etcd.MayWrite(ctx, client)
	}
	for _, kind := range []string{".checkpoints", ".cluster", ".gaps"} {
		if err := mongodb.MayWrite(ctx, s.mongo, cfg.Reliability.Checkpoint.Database, cfg.Cluster.ID+kind); err != nil {
			return f, err
		}
	}
	return finding{Level: OK, Text: "MongoDB: the user may write into " + cfg.Reliability.Checkpoint.Database}, nil
}

func (s *inspector) checkpoints(ctx context.Context) (f finding, err error) {
	_, err = s.conn.VerifyOrigin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return judgeCheckpoints(checkpointFacts{}), nil
	}
	if err != nil {
		return f, err
	}
	origin, err := s.conn.Store.Origin(ctx)
	if err != nil {
		return f, err
	}
	identity, err := s.mongo.Identity(ctx)
	if err != nil {
		return f, err
	}
	all, err := s.conn.Store.List(ctx)
	if err != nil {
		return f, backend.FirstError(err)
	}
	log, err := s.conn.Log(ctx)
	if err != nil {
		return f, err
	}
	reach := log.Extend(gap.Reach{First: s.reach.First, Last: s.reach.Last, Growing: s.mongo.Growing(ctx)})
	found := checkpointFacts{
		Created: true, Ours: origin.Of(identity), Origin: origin.Source, Source: identity,
		First: orZero(reach.Begins()), Now: s.reach.Last.Time(), Slack: s.reach.Slack, Growing: reach.Growing, Spare: reach.Spare, Halt: s.conn.Config.OnHistoryLost == "halt",
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
	return judgeCheckpoints(found), nil
}

// oneDatabase returns the database of the first watched namespace, for a user without the right to
// watch the cluster.
func oneDatabase(watch []string) string {
	if len(watch) == 0 {
		return ""
	}
	database, _, _ := strings.Cut(watch[0], ".")
	return database
}
