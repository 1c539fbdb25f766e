package devmongo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// router starts a cluster of two shards: even _ids are on the first, odd ones on the second. A
// shard without writes stays silent.
func router(t *testing.T, release string, change ...func(*devmongo.Profile)) (*devmongo.Server, *mongo.Client) {
	t.Helper()
	return start(t, devmongo.Config{Release: release, Preset: "sharded", Adjust: func(p *devmongo.Profile) {
		p.NoopEvery, p.ConfigNoopEvery = 0, 5*time.Millisecond
		for _, f := range change {
			f(p)
		}
	}})
}

func ids(s *stream, n int) (out []int32) {
	s.t.Helper()
	for range n {
		out = append(out, s.next().Lookup("documentKey", "_id").Int32())
	}
	return out
}

// What is told of a router was seen on a real 4.4 with two shards (recordings 4.4-sharded/22), and
// stands in the server's source (async_results_merger.cpp, oplog_note.cpp,
// read_concern_mongod.cpp).
func TestRouterHoldsAnEventUntilEveryShardIsPastIt(t *testing.T) {
	_, client := router(t, "7.0")
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	insert(t, c, d("_id", 0), d("_id", 2))
	for range 3 {
		s.none()
	}
	insert(t, c, d("_id", 1)) // the second shard tells that it is past them
	equal(t, ids(s, 2), []int32{0, 2})
	for range 3 {
		s.none() // and now the first one is awaited
	}
	insert(t, c, d("_id", 4))
	equal(t, ids(s, 1), []int32{1})
}

// A router merges the events of a transaction that several shards have by their tokens, whatever
// the length of these.
func TestRouterMergesATransactionByItsTokens(t *testing.T) {
	_, client := router(t, "7.0", func(p *devmongo.Profile) { p.NoopEvery = 5 * time.Millisecond })
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	all := []any{d("_id", "long enough for another length"), d("_id", 1), d("_id", 2.5), d("_id", bson.ObjectID{1}), d("_id", 4), d("_id", "x")}
	_, err := session(t, client).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return c.InsertMany(ctx, all)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for range all {
		token := text(s.next(), "_id", "_data")
		if token <= before {
			t.Errorf("%s came after %s", token, before)
		}
		before = token
	}
}

func TestPositionBehindARouterIsThatOfItsSlowestShard(t *testing.T) {
	srv, client := router(t, "7.0")
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	base := text(s.ResumeToken(), "_data")
	insert(t, c, d("_id", 0))
	for range 3 {
		s.none()
	}
	if at := text(s.ResumeToken(), "_data"); at != base {
		t.Errorf("it has moved from %s to %s", base, at)
	}
	reply := run(t, client, "admin", d("ping", 1))
	if at, i := reply.Lookup("$clusterTime", "clusterTime").Timestamp(); uint64(at)<<32|uint64(i) < srv.ClusterTime() {
		t.Error("the cluster's time is older than its newest entry")
	}
	insert(t, c, d("_id", 1))
	ids(s, 1)
	if at := text(s.ResumeToken(), "_data"); at <= base {
		t.Errorf("it has not moved from %s", base)
	}
	// Where it stands, another one goes on.
	again := watch(t, client, nil, startAfter(s.ResumeToken()))
	insert(t, c, d("_id", 2))
	equal(t, ids(again, 1), []int32{1})
}

func TestSilentShardTellsWithItsNoops(t *testing.T) {
	_, client := router(t, "7.0", func(p *devmongo.Profile) { p.NoopEvery = 200 * time.Millisecond })
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	began := time.Now()
	for n := range 3 {
		insert(t, c, d("_id", 2*n))
		equal(t, ids(s, 1), []int32{int32(2 * n)})
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("three times the other shard was awaited, in %v", took)
	}
}

func TestNotesMoveShardsOn(t *testing.T) {
	srv, client := router(t, "7.0")
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	insert(t, c, d("_id", 0))
	s.none()
	reply := run(t, client, "admin", d("appendOplogNote", 1, "data", d("msg", "go on")))
	if shards, err := reply.Lookup("raw").Document().Elements(); err != nil || len(shards) != 2 {
		t.Errorf("%s, %v", reply, err)
	}
	equal(t, ids(s, 1), []int32{0})

	// Shards that are at the time already are left as they are: nothing is written, and that is an
	// error.
	insert(t, c, d("_id", 2))
	before := srv.Stats().OplogEntries
	note := func(until uint64) (raw bson.Raw, err error) {
		err = client.Database("admin").RunCommand(t.Context(), d("appendOplogNote", 1, "data", d("msg", "go on"),
			"maxClusterTime", bson.Timestamp{T: uint32(until >> 32), I: uint32(until)})).Err()
		if failed, ok := errors.AsType[mongo.CommandError](err); ok {
			raw = failed.Raw.Lookup("raw").Document()
		}
		return raw, err
	}
	raw, err := note(1)
	wantCode(t, err, 209)
	if shards, err := raw.Elements(); err != nil || len(shards) != 2 {
		t.Errorf("%s, %v", raw, err)
	}
	s.none()
	// Only the one that is behind writes; the reply tells which.
	first := srv.ClusterTime()
	for _, err := note(first); err == nil; _, err = note(first) { // its config servers write as well
		first = srv.ClusterTime()
	}
	equal(t, ids(s, 1), []int32{2})
	if n := srv.Stats().OplogEntries - before; n < 1 {
		t.Errorf("%d entries", n)
	}

	_, old := router(t, "4.4")
	wantCode(t, old.Database("admin").RunCommand(t.Context(), d("appendOplogNote", 1, "data", d("msg", "go on"))).Err(), 59)
	_, set := start(t, devmongo.Config{})
	run(t, set, "admin", d("appendOplogNote", 1, "data", d("msg", "go on")))
	wantCode(t, set.Database("admin").RunCommand(t.Context(), d("appendOplogNote", 1)).Err(), 4)
}

func TestReadsAfterATimeMoveThoseWhoAreAskedOn(t *testing.T) {
	for name, c := range map[string]struct {
		shards, config time.Duration // how often they write by themselves
		db, coll       string
	}{
		"config servers": {5 * time.Millisecond, 0, "config", "version"},
		"shards":         {0, 5 * time.Millisecond, "a", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			srv, client := router(t, "4.4", func(p *devmongo.Profile) { p.NoopEvery, p.ConfigNoopEvery = c.shards, c.config })
			s := watch(t, client, nil)
			insert(t, client.Database("a").Collection("x"), d("_id", 0))
			for range 3 {
				s.none()
			}
			now := srv.ClusterTime()
			after := d("level", "majority", "afterClusterTime", bson.Timestamp{T: uint32(now >> 32), I: uint32(now)})
			run(t, client, c.db, d("find", c.coll, "readConcern", after))
			equal(t, ids(s, 1), []int32{0})
		})
	}
}

func TestRouterTellsNothingOfAReplicaSet(t *testing.T) {
	_, client := router(t, "7.0")
	wantCode(t, client.Database("admin").RunCommand(t.Context(), d("replSetGetStatus", 1)).Err(), 0)
	if status := run(t, client, "admin", d("serverStatus", 1, "oplog", 1)); !status.Lookup("oplog").IsZero() || !status.Lookup("repl").IsZero() {
		t.Errorf("%s", status)
	}
	if v, err := client.Database("config").Collection("version").FindOne(t.Context(), d()).Raw(); err != nil || v.Lookup("clusterId").IsZero() {
		t.Errorf("%s, %v", v, err)
	}
}
