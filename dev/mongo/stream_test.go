package devmongo_test

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/oplog"
)

func TestScopes(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			_, client := start(t, devmongo.Config{Release: release})
			db := client.Database("a")
			insert(t, db.Collection("x"), d("_id", 0))
			coll, whole, all := watch(t, db.Collection("x"), nil), watch(t, db, nil), watch(t, client, nil)
			insert(t, db.Collection("x"), d("_id", 1))
			insert(t, db.Collection("y"), d("_id", 2))
			insert(t, client.Database("b").Collection("x"), d("_id", 3))
			insert(t, client.Database("admin").Collection("x"), d("_id", 4))
			run(t, client, "admin", d("renameCollection", "a.y", "to", "a.z"))
			if err := db.Collection("x").Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := db.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			equal(t, coll.types(3), []string{"insert", "drop", "invalidate"})
			equal(t, whole.types(7), []string{"insert", "insert", "rename", "drop", "drop", "dropDatabase", "invalidate"})
			equal(t, all.types(7), []string{"insert", "insert", "insert", "rename", "drop", "drop", "dropDatabase"})
			if coll.ID() != 0 || whole.ID() != 0 || all.ID() == 0 {
				t.Errorf("cursors %d, %d, %d", coll.ID(), whole.ID(), all.ID())
			}
			all.none()
		})
	}
}

func TestRenameOntoWatchedCollection(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	db := client.Database("a")
	insert(t, db.Collection("target"), d("_id", 0))
	insert(t, db.Collection("tmp"), d("_id", 0))
	s := watch(t, db.Collection("target"), nil)
	run(t, client, "admin", d("renameCollection", "a.tmp", "to", "a.target", "dropTarget", true))
	e := s.next()
	if text(e, "operationType") != "rename" || text(e, "ns", "coll") != "tmp" || text(e, "to", "coll") != "target" {
		t.Error(e)
	}
	equal(t, s.types(1), []string{"invalidate"})
}

func TestResumeAfterEachKindOfToken(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			srv, client := start(t, devmongo.Config{Release: release, NoopEvery: time.Hour})
			c := client.Database("a").Collection("x")
			insert(t, c, d("_id", 0))
			s := watch(t, c, nil)
			base := s.ResumeToken()
			insert(t, c, d("_id", 1), d("_id", 2), d("_id", 3))
			var events []bson.Raw
			for range 3 {
				events = append(events, s.next())
			}
			insert(t, client.Database("a").Collection("other"), d("_id", 1))
			s.none()
			mark := s.ResumeToken()
			if parsed, err := oplog.ParseToken(bsoncore.Document(mark)); err != nil || !parsed.IsMark() || parsed.TS != srv.ClusterTime() {
				t.Errorf("after a foreign event the token is %s: %+v, %v", mark, parsed, err)
			}
			insert(t, c, d("_id", 4))
			for name, tc := range map[string]struct {
				from  func(*options.ChangeStreamOptionsBuilder)
				first int32
			}{
				"first high watermark":       {resumeAfter(base), 1},
				"event":                      {resumeAfter(events[0].Lookup("_id").Document()), 2},
				"startAfter event":           {startAfter(events[1].Lookup("_id").Document()), 3},
				"later high watermark":       {resumeAfter(mark), 4},
				"startAfter high watermark":  {startAfter(mark), 4},
				"operation time is included": {startAt(clusterTime(events[1])), 2},
			} {
				again := watch(t, c, nil, tc.from)
				if got := again.next().Lookup("documentKey", "_id").Int32(); got != tc.first {
					t.Errorf("%s: first is %d, want %d", name, got, tc.first)
				}
			}
			srv.SetClockOffset(-time.Hour) // or a new second would be later than all three of these
			future := watch(t, c, nil, startAt(srv.ClusterTime()+3))
			insert(t, c, d("_id", 5), d("_id", 6), d("_id", 7))
			if got := future.next().Lookup("documentKey", "_id").Int32(); got != 7 {
				t.Errorf("a start in the future shows %d", got)
			}
		})
	}
}

func TestTokensSortLikeTheStream(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		_, client := start(t, devmongo.Config{Release: release})
		c := client.Database("a").Collection("x")
		s := watch(t, client, nil)
		previous := text(s.ResumeToken(), "_data")
		for i := range 20 {
			insert(t, c, d("_id", i))
		}
		for range 20 {
			data := text(s.next(), "_id", "_data")
			if data <= previous {
				t.Errorf("%s: %s comes after %s", release, data, previous)
			}
			previous = data
		}
	}
}

func TestInvalidateAndAfter(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			_, client := start(t, devmongo.Config{Release: release})
			c := client.Database("a").Collection("x")
			insert(t, c, d("_id", 0))
			hidden := watch(t, c, []bson.D{d("$match", d("operationType", d("$ne", "invalidate")))})
			s := watch(t, c, nil)
			if err := c.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			drop := s.next()
			invalidate := s.next()
			if text(invalidate, "operationType") != "invalidate" || clusterTime(invalidate) != clusterTime(drop) || s.ID() != 0 {
				t.Error(drop, invalidate, s.ID())
			}
			if s.Next(t.Context()) || s.Err() != nil {
				t.Error("something after the end", s.Err())
			}
			equal(t, hidden.types(1), []string{"drop"})
			if hidden.Next(t.Context()) || hidden.Err() != nil || hidden.ID() != 0 {
				t.Error("a hidden invalidate ends the stream too", hidden.Err())
			}
			last := invalidate.Lookup("_id").Document()
			_, err := tryWatch(t, c, nil, resumeAfter(last))
			wantCode(t, err, 260)
			shown := watch(t, c, nil, startAfter(last))
			filtered := watch(t, c, []bson.D{d("$match", d("operationType", d("$ne", "invalidate")))}, startAfter(last))
			shown.none()
			filtered.none()
			insert(t, c, d("_id", "again"))
			equal(t, shown.types(1), []string{"insert"})
			equal(t, filtered.types(1), []string{"insert"})
		})
	}
}

func TestDatabaseTokenOnACollectionIsRefused(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	db := client.Database("a")
	insert(t, db.Collection("x"), d("_id", 0))
	s := watch(t, client, nil)
	if err := db.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, s.types(1), []string{"drop"})
	gone := s.next().Lookup("_id").Document()
	_, err := tryWatch(t, db.Collection("x"), nil, resumeAfter(gone))
	wantCode(t, err, 260)
	watch(t, client, nil, resumeAfter(gone)).none()
}

func TestRefusedStreams(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	_, later := start(t, devmongo.Config{Release: "7.0"})
	stage := func(options bson.D, more ...any) bson.A { return append(bson.A{d("$changeStream", options)}, more...) }
	for _, tc := range []struct {
		name     string
		seven    bool
		db       string
		coll     any
		pipeline bson.A
		code     int
	}{
		{"unknown option", false, "a", "x", stage(d("frob", 1)), 40415},
		{"option of a later release", false, "a", "x", stage(d("showExpandedEvents", true)), 40415},
		{"images of a later release", false, "a", "x", stage(d("fullDocument", "whenAvailable")), 40575},
		{"unknown image", true, "a", "x", stage(d("fullDocument", "sometimes")), 2},
		{"cluster stream elsewhere", false, "a", 1, stage(d("allChangesForCluster", true)), 72},
		{"admin without it", false, "admin", 1, stage(d()), 73},
		{"local", false, "local", "oplog.rs", stage(d()), 73},
		{"system collection", false, "a", "system.users", stage(d()), 73},
		{"unknown stage", false, "a", "x", stage(d(), d("$frob", d())), 40324},
		{"split on 4.4", false, "a", "x", stage(d(), d("$changeStreamSplitLargeEvent", d())), 40324},
		{"split is not last", true, "a", "x", stage(d(), d("$changeStreamSplitLargeEvent", d()), d("$match", d())), 7182802},
		{"split twice", true, "a", "x", stage(d(), d("$changeStreamSplitLargeEvent", d()), d("$changeStreamSplitLargeEvent", d())), 7182802},
		{"group", false, "a", "x", stage(d(), d("$group", d("_id", nil))), 20},
		{"a stage devmongo lacks", false, "a", "x", stage(d(), d("$addFields", d("a", 1))), 115},
		{"not first", false, "a", "x", bson.A{d("$match", d()), d("$changeStream", d())}, 40602},
		{"bad operator", false, "a", "x", stage(d(), d("$match", d("a", d("$frob", 1)))), 2},
		{"two starts", false, "a", "x", stage(d("resumeAfter", d("_data", "826B012B7B000000312B0229296E04"), "startAtOperationTime", bson.Timestamp{T: 1})), 40674},
		{"two tokens", false, "a", "x", stage(d("resumeAfter", d("_data", "826B012B7B000000312B0229296E04"), "startAfter", d("_data", "826B012B7B000000312B0229296E04"))), 50865},
		{"token of the wrong type", false, "a", "x", stage(d("resumeAfter", 5)), 14},
		{"empty token", false, "a", "x", stage(d("resumeAfter", d())), 40647},
		{"bits of the wrong type", false, "a", "x", stage(d("resumeAfter", d("_data", "82", "_typeBits", "x"))), 40648},
		{"empty key", false, "a", "x", stage(d("resumeAfter", d("_data", ""))), 40649},
		{"no hex", false, "a", "x", stage(d("resumeAfter", d("_data", "zz"))), 9},
		{"key ends early", false, "a", "x", stage(d("resumeAfter", d("_data", "826B012B89000000062B"))), 15},
		{"unknown type byte", false, "a", "x", stage(d("resumeAfter", d("_data", "FF"))), 50811},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := client
			if tc.seven {
				c = later
			}
			err := c.Database(tc.db).RunCommand(t.Context(), d("aggregate", tc.coll, "pipeline", tc.pipeline, "cursor", d())).Err()
			wantCode(t, err, tc.code)
		})
	}
}

func TestPipelines(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	named := watch(t, client, []bson.D{d("$match", d("$or", bson.A{
		d("ns.db", d("$in", bson.A{"a"}), "ns.coll", d("$in", bson.A{"x"})),
		d("to.db", "a", "to.coll", "x"),
		d("operationType", "dropDatabase", "ns.db", d("$in", bson.A{"a"})),
	}))})
	content := watch(t, c, []bson.D{d("$match", d("fullDocument.k", d("$gt", 1))), d("$project", d("fullDocument", 0))})
	inclusion := watch(t, c, []bson.D{d("$project", d("documentKey", 1))})
	insert(t, c, d("_id", 1, "k", 1), d("_id", 2, "k", 2))
	insert(t, client.Database("a").Collection("y"), d("_id", 1))
	insert(t, client.Database("b").Collection("x"), d("_id", 1))
	run(t, client, "admin", d("renameCollection", "a.y", "to", "a.x", "dropTarget", true))
	if err := client.Database("a").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, named.types(5), []string{"insert", "insert", "rename", "drop", "dropDatabase"})
	e := content.next()
	if e.Lookup("documentKey", "_id").Int32() != 2 || !e.Lookup("fullDocument").IsZero() {
		t.Error(e)
	}
	e = inclusion.next()
	if elements, _ := e.Elements(); len(elements) != 2 {
		t.Error(e)
	}
	away := watch(t, client.Database("c").Collection("x"), []bson.D{d("$project", d("_id", 0))})
	insert(t, client.Database("c").Collection("x"), d("_id", 1))
	if got := away.fails(); got != 280 {
		t.Errorf("without _id the stream fails with %d", got)
	}
}

func TestLookup(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1, "v", 1), d("_id", 2))
	s := watch(t, c, nil, func(o *options.ChangeStreamOptionsBuilder) { o.SetFullDocument(options.UpdateLookup) })
	for i := range 3 {
		if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("v", 10+i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.UpdateOne(t.Context(), d("_id", 2), d("$set", d("v", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteOne(t.Context(), d("_id", 2)); err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		e := s.next()
		if e.Lookup("fullDocument", "v").Int32() != 12 || e.Lookup("updateDescription", "updatedFields", "v").Int32() != 10+i {
			t.Error(e)
		}
	}
	if e := s.next(); e.Lookup("fullDocument").Type != bson.TypeNull {
		t.Error(e)
	}
	equal(t, s.types(1), []string{"delete"})
}

func TestOddIDsRoundTripThroughTokens(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		_, client := start(t, devmongo.Config{Release: release})
		c := client.Database("a").Collection("odd")
		insert(t, c, d("_id", "seed"))
		dec, _ := bson.ParseDecimal128("12345678901234567890.1234567890123")
		ids := []any{
			d("b", 1, "a", bson.A{"x", nil}), bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, dec, 1.5, int64(7), "text\x00zero", true,
			bson.DateTime(-5), bson.Timestamp{T: 5, I: 6}, nil, bson.MinKey{}, bson.MaxKey{}, d("n", 1.0), d("n", int64(2)), d("d", dec),
			bson.NewObjectID(), -1e300, int64(-1) << 62, bson.Binary{Data: []byte(strings.Repeat("b", 300))}, "seventeen",
		}
		s := watch(t, c, nil)
		for i, id := range ids {
			insert(t, c, d("_id", id, "n", i))
		}
		for i := range ids {
			e := s.next()
			if int(e.Lookup("fullDocument", "n").Int32()) != i {
				t.Fatal(e)
			}
			if i == len(ids)-1 {
				break
			}
			again := watch(t, c, nil, resumeAfter(e.Lookup("_id").Document()))
			if got := int(again.next().Lookup("fullDocument", "n").Int32()); got != i+1 {
				t.Errorf("%s: after %v comes %d, want %d", release, ids[i], got, i+1)
			}
			again.close()
		}
	}
}

func TestStreamsDoNotHoldEachOtherUp(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	var all []*stream
	for range 8 {
		all = append(all, watch(t, client, nil))
	}
	if err := srv.Generate(t.Context(), devmongo.Generate{DB: "a", Coll: "x", Count: 2000, Documents: 10, Rate: 20_000}); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		last := map[int64]int64{}
		for range 2000 {
			e := s.next()
			id := e.Lookup("documentKey", "_id").Int64()
			fields := e.Lookup("updateDescription", "updatedFields")
			if text(e, "operationType") == "insert" {
				fields = e.Lookup("fullDocument")
			}
			seq := fields.Document().Lookup("seq").Int64()
			if seq != last[id]+1 || fields.Document().Lookup("at").Int64() == 0 {
				t.Fatalf("document %d: %d comes after %d", id, seq, last[id])
			}
			last[id] = seq
		}
	}
	st := srv.Stats()
	if st.ChangeStreamsOpen != 8 || st.ChangeStreamsOpened != 8 || st.EventsSent != 16000 || st.EntriesExamined < 16000 {
		t.Errorf("%+v", st)
	}
}
