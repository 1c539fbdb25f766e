package devmongo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

func TestReleasesTellWhatTheyAre(t *testing.T) {
	for release, want := range map[string]struct {
		wire, token int32
		wall, split bool
	}{
		"4.4": {9, 1, false, false}, "6.0": {17, 1, true, true}, "7.0": {21, 2, true, true}, "8.0": {25, 2, true, true},
	} {
		_, client := start(t, devmongo.Config{Release: release})
		if got := run(t, client, "admin", d("hello", 1)).Lookup("maxWireVersion").Int32(); got != want.wire {
			t.Errorf("%s: wire version %d", release, got)
		}
		if got := text(run(t, client, "admin", d("buildInfo", 1)), "version"); got != release+".0" {
			t.Errorf("%s: version %s", release, got)
		}
		c := client.Database("a").Collection("x")
		insert(t, c, d("_id", 0))
		s := watch(t, c, nil)
		insert(t, c, d("_id", 1))
		e := s.next()
		if got := !e.Lookup("wallTime").IsZero(); got != want.wall {
			t.Errorf("%s: wallTime %v", release, got)
		}
		if version := text(e, "_id", "_data")[18:22]; version != map[int32]string{1: "2B02", 2: "2B04"}[want.token] {
			t.Errorf("%s: a token of version %s", release, version)
		}
		_, err := tryWatch(t, c, []bson.D{d("$changeStreamSplitLargeEvent", d())})
		if got := err == nil; got != want.split {
			t.Errorf("%s: split %v", release, err)
		}
	}
}

func TestUnknownProfilesAreRefused(t *testing.T) {
	for _, c := range []devmongo.Config{{Release: "3.6"}, {Preset: "angry"}} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "4.4, 6.0, 7.0, 8.0") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRouterTellsOfNoReplicaSet(t *testing.T) {
	_, client := start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.Mongos = true }})
	hello := run(t, client, "admin", d("hello", 1))
	if text(hello, "msg") != "isdbgrid" || !hello.Lookup("setName").IsZero() || !hello.Lookup("lastWrite").IsZero() {
		t.Errorf("%s", hello)
	}
	wantCode(t, client.Database("local").Collection("oplog.rs").FindOne(t.Context(), d()).Err(), 13)
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	s := watch(t, client, nil)
	insert(t, c, d("_id", 1))
	equal(t, s.types(1), []string{"insert"})
}

func TestUserWithoutLocal(t *testing.T) {
	_, client := start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.DenyLocal = true }})
	wantCode(t, client.Database("local").Collection("oplog.rs").FindOne(t.Context(), d()).Err(), 13)
	if hello := run(t, client, "admin", d("hello", 1)); text(hello, "setName") == "" {
		t.Errorf("%s", hello)
	}
}

func TestLogIsTruncatedBesideOpenings(t *testing.T) {
	srv, client := start(t, devmongo.Config{Release: "7.0", Adjust: func(p *devmongo.Profile) { p.TruncateBeforeOpening = 2 }})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0), d("_id", 1), d("_id", 2), d("_id", 3))
	first := srv.ClusterTime() - 3
	srv.TruncateOplog(4)
	_, err := tryWatch(t, c, nil, startAt(first))
	wantCode(t, err, 286)
	_, err = tryWatch(t, c, nil, startAt(first+2)) // it was the first entry by then
	wantCode(t, err, 286)
	equal(t, watch(t, c, nil, startAt(first+3)).types(1), []string{"insert"}) // the newest stays
}

func TestLogIsTruncatedBeforeATime(t *testing.T) {
	srv, client := start(t, devmongo.Config{Release: "7.0"})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0), d("_id", 1), d("_id", 2), d("_id", 3))
	last := srv.ClusterTime()
	srv.TruncateOplogBefore(last - 1)
	_, err := tryWatch(t, c, nil, startAt(last-2))
	wantCode(t, err, 286)
	equal(t, watch(t, c, nil, startAt(last-1)).types(2), []string{"insert", "insert"})
	srv.TruncateOplogBefore(last + 5) // the newest stays
	equal(t, watch(t, c, nil, startAt(last)).types(1), []string{"insert"})
}

// Its log is the primary's: what it wrote there itself would be later than changes that it does not
// have yet.
func TestSecondaryWritesNothingByItself(t *testing.T) {
	often := devmongo.Config{NoopEvery: time.Millisecond, Adjust: func(p *devmongo.Profile) { p.StrangerEvery = time.Millisecond }}
	_, primary := start(t, often)
	often.Members, often.Primary = []string{"127.0.0.1:1"}, "127.0.0.1:1"
	secondary := devmongotest.Start(t, often)
	before := secondary.ClusterTime()
	s := watch(t, primary.Database("stranger").Collection("noise"), nil)
	s.types(20)
	if secondary.ClusterTime() != before {
		t.Error("the secondary's log has moved")
	}
}

func TestOperationTimeCoversWhatCameAfterTheResult(t *testing.T) {
	var write func()
	srv, client := start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) {
		p.BeforeReply = func(command, namespace string) {
			if command == "find" && namespace == "a.x" {
				write()
			}
		}
	}})
	insert(t, client.Database("a").Collection("x"), d("_id", 0))
	write = func() {
		if err := srv.Generate(t.Context(), devmongo.Generate{DB: "b", Coll: "y", Count: 1}); err != nil {
			t.Error(err)
		}
	}
	before := srv.ClusterTime()
	reply := run(t, client, "a", d("find", "x"))
	if at, i := reply.Lookup("operationTime").Timestamp(); uint64(at)<<32|uint64(i) <= before {
		t.Error("the operation time is from before the write")
	}
	if n, err := reply.Lookup("cursor", "firstBatch").Array().Values(); err != nil || len(n) != 1 {
		t.Errorf("%v, %v", n, err)
	}
}

func TestSplitsThatVary(t *testing.T) {
	_, client := start(t, devmongo.Config{Release: "7.0", OplogBytes: 256 << 20, Adjust: func(p *devmongo.Profile) { p.SplitsVary = true }})
	c := client.Database("a").Collection("x")
	if err := client.Database("a").CreateCollection(t.Context(), "x", options.CreateCollection().SetChangeStreamPreAndPostImages(d("enabled", true))); err != nil {
		t.Fatal(err)
	}
	images := func(o *options.ChangeStreamOptionsBuilder) {
		o.SetFullDocument(options.Required).SetFullDocumentBeforeChange(options.Required)
	}
	split := []bson.D{d("$changeStreamSplitLargeEvent", d())}
	insert(t, c, d("_id", 1, "p", strings.Repeat("x", 7<<20)))
	base := watch(t, c, split, images).ResumeToken()
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("p", strings.Repeat("y", 7<<20)))); err != nil {
		t.Fatal(err)
	}
	var of []int32
	for range 2 {
		of = append(of, watch(t, c, split, images, resumeAfter(base)).next().Lookup("splitEvent", "of").Int32())
	}
	if of[0] == of[1] {
		t.Errorf("fragments: %v", of)
	}
}

// What is told of a server whose journal is written now and then was seen on a real 4.4 with one
// member.
func TestMajorityLagsWhereNobodyWaitsForIt(t *testing.T) {
	srv, client := start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.JournalEvery = time.Hour }})
	c := client.Database("a").Collection("x", options.Collection().SetWriteConcern(writeconcern.W1()))
	committed := client.Database("a").Collection("x", options.Collection().SetReadConcern(readconcern.Majority()))
	durable := client.Database("a").Collection("x", options.Collection().SetWriteConcern(writeconcern.Majority()))
	stream := watch(t, committed, nil)
	seen := func(c *mongo.Collection) (all []string) {
		t.Helper()
		cursor, err := c.Find(t.Context(), d(), options.Find().SetSort(d("_id", 1)))
		if err != nil {
			t.Fatal(err)
		}
		for cursor.Next(t.Context()) {
			all = append(all, fmt.Sprint(cursor.Current.Lookup("_id").Int32(), cursor.Current.Lookup("v")))
		}
		return all
	}
	insert(t, c, d("_id", 1, "v", "a"), d("_id", 2, "v", "a"))
	equal(t, seen(committed), nil)
	insert(t, durable, d("_id", 3, "v", "a"))
	equal(t, seen(committed), []string{`1 "a"`, `2 "a"`, `3 "a"`})

	if _, err := c.UpdateByID(t.Context(), 1, d("$set", d("v", "b"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteOne(t.Context(), d("_id", 2)); err != nil {
		t.Fatal(err)
	}
	equal(t, seen(c), []string{`1 "b"`, `3 "a"`})
	equal(t, seen(committed), []string{`1 "a"`, `2 "a"`, `3 "a"`})
	if n, err := committed.CountDocuments(t.Context(), d()); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	equal(t, stream.types(3), []string{"insert", "insert", "insert"})
	stream.none()

	// A read after a time waits for it, and has the journal written.
	now := srv.ClusterTime()
	reply := run(t, client, "a", d("find", "x", "sort", d("_id", 1), "readConcern",
		d("level", "majority", "afterClusterTime", bson.Timestamp{T: uint32(now >> 32), I: uint32(now)})))
	if docs, err := reply.Lookup("cursor", "firstBatch").Array().Values(); err != nil || len(docs) != 2 {
		t.Errorf("%v, %v", docs, err)
	}
	equal(t, seen(committed), []string{`1 "b"`, `3 "a"`})
	equal(t, stream.types(2), []string{"update", "delete"})
}

func TestLogOfALivelyServerMovesByItself(t *testing.T) {
	srv, client := start(t, devmongo.Config{Preset: "lively"})
	s := watch(t, client, nil)
	before := srv.ClusterTime()
	first := s.types(1)
	if first[0] == "delete" { // the stream was opened between the two
		first = s.types(1)
	}
	equal(t, append(first, s.types(1)...), []string{"insert", "delete"})
	if now := srv.ClusterTime(); now < before+3 {
		t.Errorf("%d entries for a document that came and went beside something else", now-before)
	}
}
