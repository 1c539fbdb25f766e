package devmongo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// session starts one that ends with the test.
func session(t testing.TB, c *mongo.Client) *mongo.Session {
	t.Helper()
	s, err := c.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.EndSession(context.Background()) })
	return s
}

func TestTransactionsShareOneClusterTime(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		_, client := start(t, devmongo.Config{Release: release})
		c := client.Database("a").Collection("x")
		insert(t, c, d("_id", "old"))
		s := watch(t, client, nil)
		se := session(t, client)
		_, err := se.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if _, err := c.InsertOne(ctx, d("_id", 1, "v", 1)); err != nil {
				return nil, err
			}
			if _, err := c.UpdateOne(ctx, d("_id", 1), d("$set", d("v", 2))); err != nil {
				return nil, err
			}
			if _, err := c.DeleteOne(ctx, d("_id", "old")); err != nil {
				return nil, err
			}
			if n, err := c.CountDocuments(ctx, d()); n != 1 || err != nil {
				t.Errorf("inside there are %d, %v", n, err)
			}
			if n, err := c.CountDocuments(t.Context(), d("_id", "old")); n != 1 || err != nil {
				t.Errorf("outside there are %d, %v", n, err)
			}
			_, err := client.Database("b").Collection("new").InsertOne(ctx, d("_id", 1))
			return nil, err
		})
		if err != nil {
			t.Fatal(err)
		}
		var events []bson.Raw
		for range 4 {
			events = append(events, s.next())
		}
		for i, e := range events {
			if clusterTime(e) != clusterTime(events[0]) || e.Lookup("txnNumber").Int64() != 1 || e.Lookup("lsid", "uid").IsZero() {
				t.Errorf("event %d: %s", i, e)
			}
			if i == 3 {
				break
			}
			again := watch(t, client, nil, resumeAfter(e.Lookup("_id").Document()))
			if next := again.next(); text(next, "_id", "_data") != text(events[i+1], "_id", "_data") {
				t.Errorf("after event %d comes %s", i, next)
			}
		}
	}
}

func TestAbortedTransactionLeavesNothing(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1, "v", 1))
	s := watch(t, client, nil)
	before := srv.ClusterTime()
	se := session(t, client)
	if err := se.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(t.Context(), se)
	if _, err := c.UpdateOne(ctx, d("_id", 1), d("$set", d("v", 2))); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Database("b").Collection("new").InsertOne(ctx, d("_id", 1)); err != nil {
		t.Fatal(err)
	}
	if err := se.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	s.none()
	if srv.ClusterTime() != before {
		t.Error("the log grew")
	}
	if names, err := client.Database("b").ListCollectionNames(t.Context(), d()); len(names) != 0 || err != nil {
		t.Error(names, err)
	}
	if n, err := c.CountDocuments(t.Context(), d("v", 1)); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestTransactionConflicts(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1, "v", 0), d("_id", 2, "v", 0))
	one, two := session(t, client), session(t, client)
	for _, s := range []*mongo.Session{one, two} {
		if err := s.StartTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	ctx1, ctx2 := mongo.NewSessionContext(t.Context(), one), mongo.NewSessionContext(t.Context(), two)
	inc := d("$inc", d("v", 1))
	if _, err := c.UpdateOne(ctx1, d("_id", 1), inc); err != nil {
		t.Fatal(err)
	}
	_, err := c.UpdateOne(ctx2, d("_id", 1), inc)
	wantCode(t, err, 112)
	if se, ok := errors.AsType[mongo.ServerError](err); !ok || !se.HasErrorLabel("TransientTransactionError") {
		t.Errorf("%v has no label", err)
	}
	_, err = c.UpdateOne(ctx2, d("_id", 2), inc)
	wantCode(t, err, 251) // the conflict has aborted it
	// A write outside waits for the transaction.
	done := make(chan error, 1)
	go func() {
		_, err := c.UpdateOne(t.Context(), d("_id", 1), inc)
		done <- err
	}()
	enough := time.NewTimer(50 * time.Millisecond)
	defer enough.Stop()
	select {
	case err := <-done:
		t.Fatal("it did not wait", err)
	case <-enough.C:
	}
	if err := one.CommitTransaction(ctx1); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, err := c.CountDocuments(t.Context(), d("_id", 1, "v", 2)); n != 1 || err != nil {
		t.Error(n, err)
	}
	if err := one.CommitTransaction(ctx1); err != nil {
		t.Error("to commit again is no error:", err)
	}
}

func TestDuplicateKeyAbortsTheTransaction(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1))
	se := session(t, client)
	if err := se.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(t.Context(), se)
	_, err := c.InsertOne(ctx, d("_id", 1))
	wantCode(t, err, 11000)
	wantCode(t, se.CommitTransaction(ctx), 251)
}

func TestLargeTransaction(t *testing.T) {
	_, client := start(t, devmongo.Config{OplogBytes: 256 << 20})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", "seed"))
	s := watch(t, c, []bson.D{d("$project", d("fullDocument.p", 0))})
	se := session(t, client)
	const docs = 24
	_, err := se.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for i := range docs {
			if _, err := c.InsertOne(ctx, d("_id", i, "p", strings.Repeat("x", 1<<20))); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var at uint64
	for i := range docs {
		e := s.next()
		if e.Lookup("documentKey", "_id").Int32() != int32(i) || at != 0 && clusterTime(e) != at {
			t.Fatalf("event %d: %s", i, e)
		}
		at = clusterTime(e)
	}
	cur, err := client.Database("local").Collection("oplog.rs").Find(t.Context(), d("ns", "admin.$cmd"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []bson.Raw
	if err := cur.All(t.Context(), &entries); err != nil || len(entries) < 2 {
		t.Fatalf("%d oplog entries, %v", len(entries), err)
	}
	last := entries[len(entries)-1]
	if ts, i := last.Lookup("ts").Timestamp(); uint64(ts)<<32|uint64(i) != at {
		t.Error("the events do not have the commit's time")
	}
	if !entries[0].Lookup("o", "partialTxn").Boolean() || last.Lookup("o", "count").Int64() != docs || last.Lookup("prevOpTime", "ts").IsZero() {
		t.Error("the entries are not linked")
	}
}
