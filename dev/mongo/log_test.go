package devmongo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

func TestOplogIsACollection(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1), d("_id", 2))
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("n.a", 1), "$unset", d("zz", ""))); err != nil {
		t.Fatal(err)
	}
	log := client.Database("local").Collection("oplog.rs")
	var last, first bson.Raw
	if err := log.FindOne(t.Context(), d(), options.FindOne().SetSort(d("$natural", -1))).Decode(&last); err != nil {
		t.Fatal(err)
	}
	if err := log.FindOne(t.Context(), d(), options.FindOne().SetSort(d("$natural", 1)).SetProjection(d("ts", 1))).Decode(&first); err != nil {
		t.Fatal(err)
	}
	if text(last, "op") != "u" || last.Lookup("o", "$set", "n.a").Int32() != 1 || last.Lookup("o2", "_id").Int32() != 1 || first.Lookup("ts").IsZero() {
		t.Error(last, first)
	}
	ts, i := last.Lookup("ts").Timestamp()
	at := bson.Timestamp{T: ts, I: i}
	if n, err := log.CountDocuments(t.Context(), d("ts", d("$gte", at))); n != 1 || err != nil {
		t.Error(n, err)
	}
	cur, err := log.Find(t.Context(), d("ts", d("$gt", at), "op", "i"), options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close(context.Background())
	if cur.TryNext(t.Context()) {
		t.Error(cur.Current)
	}
	insert(t, c, d("_id", 3))
	if !cur.Next(t.Context()) || cur.Current.Lookup("o", "_id").Int32() != 3 {
		t.Error(cur.Current, cur.Err())
	}
	for j := range 10 {
		insert(t, c, d("_id", 10+j))
	}
	srv.TruncateOplog(1)
	for cur.Next(t.Context()) {
	}
	wantCode(t, cur.Err(), 136)
	status := run(t, client, "admin", d("serverStatus", 1, "oplog", 1))
	if e, l := status.Lookup("oplog", "earliestOptime"), status.Lookup("oplog", "latestOptime"); !e.Equal(l) || status.Lookup("devmongo", "oplogEntries").Int64() != 1 {
		t.Error(status.Lookup("oplog"), status.Lookup("devmongo"))
	}
}

func TestGeneratedEventsAreLikeWrittenOnes(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		for _, oids := range []bool{false, true} {
			srv, client := start(t, devmongo.Config{Release: release})
			c := client.Database("a").Collection("gen")
			s := watch(t, client.Database("a"), nil)
			const documents = 300 // ids of one and of two bytes
			g := devmongo.Generate{DB: "a", Coll: "gen", Count: 2*documents + 1, Documents: documents, ObjectIDs: oids, Payload: 10}
			if err := srv.Generate(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			for i := range g.Count {
				e := s.next()
				if err := e.Validate(); err != nil {
					t.Fatal(err)
				}
				again := bsoncore.Document(e)
				fields := e.Lookup("updateDescription", "updatedFields")
				if i < documents {
					fields = e.Lookup("fullDocument")
				}
				if got := fields.Document().Lookup("seq").Int64(); got != int64(i/documents)+1 || len(text(fields.Document(), "payload")) != 10 {
					t.Fatalf("event %d: %s", i, again)
				}
				if i%97 == 0 {
					equalToWritten(t, client, e)
				}
			}
			var stored bson.M
			if err := c.FindOne(t.Context(), d("seq", 3)).Decode(&stored); err != nil || len(stored) != 4 {
				t.Error(stored, err)
			}
			if n, err := c.CountDocuments(t.Context(), d("seq", 2)); n != documents-1 || err != nil {
				t.Error(n, err)
			}
			if err := srv.Generate(t.Context(), g); err == nil {
				t.Error("existing documents are generated again")
			}
		}
	}
}

// equalToWritten resumes after a generated event's token, which only works when the token is
// exactly that of the document.
func equalToWritten(t *testing.T, client *mongo.Client, e bson.Raw) {
	t.Helper()
	again := watch(t, client.Database("a"), nil, resumeAfter(e.Lookup("_id").Document()))
	again.TryNext(t.Context())
	if err := again.Err(); err != nil {
		t.Errorf("%s: %v", e, err)
	}
	again.close()
}

func TestGenerateEndsWithItsContext(t *testing.T) {
	srv, _ := start(t, devmongo.Config{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, begun := make(chan error, 1), time.Now()
	go func() { ended <- srv.Generate(ctx, devmongo.Generate{DB: "a", Coll: "x", Count: 1 << 30, Rate: 1000}) }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for srv.Stats().OplogEntries < 50 {
		select {
		case <-look.C:
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n, took := srv.Stats().OplogEntries, time.Since(begun); n > 50+int64(1000*took.Seconds()) {
		t.Errorf("%d events in %v at 1000 a second", n, took)
	}
}

func TestClock(t *testing.T) {
	srv, client := start(t, devmongo.Config{NoopEvery: 5 * time.Millisecond})
	s := watch(t, client, nil)
	before := srv.ClusterTime()
	srv.SetClockOffset(time.Hour)
	insert(t, client.Database("a").Collection("x"), d("_id", 1))
	ahead := clusterTime(s.next())
	if ahead>>32 < before>>32+3500 {
		t.Errorf("%d after %d", ahead>>32, before>>32)
	}
	srv.SetClockOffset(-time.Hour)
	insert(t, client.Database("a").Collection("x"), d("_id", 2))
	if back := clusterTime(s.next()); back <= ahead || back>>32 != ahead>>32 {
		t.Errorf("%x after %x", back, ahead)
	}
	// No-ops move the token of a quiet stream.
	token := text(s.ResumeToken(), "_data")
	for text(s.ResumeToken(), "_data") == token {
		s.none()
	}
}
