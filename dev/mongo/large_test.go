package devmongo_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

func TestRepliesEndAt16MiB(t *testing.T) {
	srv, client := start(t, devmongo.Config{OplogBytes: 1 << 30})
	from := srv.ClusterTime() + 1
	const events = 60
	if err := srv.Generate(t.Context(), devmongo.Generate{DB: "a", Coll: "x", Count: events, Documents: events, Payload: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	for _, stages := range []bson.A{nil, {d("$project", d("documentKey", 0))}} {
		pipeline := append(bson.A{d("$changeStream", d("startAtOperationTime", bson.Timestamp{T: uint32(from >> 32), I: uint32(from)}))}, stages...)
		first := run(t, client, "a", d("aggregate", 1, "pipeline", pipeline, "cursor", d("batchSize", 0)))
		id := first.Lookup("cursor", "id").Int64()
		seen := 0
		for seen < events {
			reply := run(t, client, "a", d("getMore", id, "collection", "$cmd.aggregate"))
			batch, _ := reply.Lookup("cursor", "nextBatch").Array().Values()
			if n := len(batch); n == 0 || n > 15 {
				t.Fatalf("%d events of 1 MiB in a reply", n)
			}
			seen += len(batch)
			last := batch[len(batch)-1].Document()
			if string(last.Lookup("_id").Document()) != string(reply.Lookup("cursor", "postBatchResumeToken").Document()) {
				t.Error("the token of a full batch is that of its last event")
			}
		}
	}
}

func TestEventTooLarge(t *testing.T) {
	_, client := start(t, devmongo.Config{OplogBytes: 256 << 20})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	lookup := func(o *options.ChangeStreamOptionsBuilder) { o.SetFullDocument(options.UpdateLookup) }
	s := watch(t, c, nil, lookup)
	base := s.ResumeToken()
	insert(t, c, d("_id", 1, "p", strings.Repeat("x", 9<<20)))
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("p", strings.Repeat("y", 9<<20)))); err != nil {
		t.Fatal(err)
	}
	if got := s.fails(); got != 10334 {
		t.Errorf("code %d", got)
	}
	if msg := s.Err().Error(); !strings.Contains(msg, `First element: _id: { _data: "82`) || !strings.HasSuffix(msg, `" }`) || strings.Contains(msg, "...") {
		t.Errorf("message %s", msg)
	}
	cured := watch(t, c, []bson.D{d("$project", d("updateDescription", 0))}, lookup, resumeAfter(base))
	equal(t, cured.types(2), []string{"insert", "update"})
}

// A server shows 150 bytes of a string that is not short: tokens of version 2 never fit, those of
// version 1 only with a short _id.
func TestLongTokensAreCutInMessages(t *testing.T) {
	for release, id := range map[string]string{"4.4": strings.Repeat("long", 30), "6.0": strings.Repeat("long", 30), "7.0": "short", "8.0": "short"} {
		_, client := start(t, devmongo.Config{Release: release, OplogBytes: 256 << 20})
		c := client.Database("a").Collection("x")
		insert(t, c, d("_id", id, "p", ""))
		s := watch(t, c, nil, func(o *options.ChangeStreamOptionsBuilder) { o.SetFullDocument(options.UpdateLookup) })
		if _, err := c.UpdateOne(t.Context(), d("_id", id), d("$set", d("p", strings.Repeat("y", 9<<20)))); err != nil {
			t.Fatal(err)
		}
		if got := s.fails(); got != 10334 {
			t.Errorf("%s: code %d", release, got)
		}
		_, quoted, _ := strings.Cut(s.Err().Error(), `_data: "`)
		if token, _, cut := strings.Cut(quoted, `..."`); !cut || len(token) != 150 {
			t.Errorf("%s: message %s", release, s.Err())
		}
	}
}

// Where one field is larger than a fragment may be, with its token twice, there is nothing to
// split.
func TestEventThatCannotBeSplit(t *testing.T) {
	_, client := start(t, devmongo.Config{Release: "7.0", OplogBytes: 256 << 20})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	s := watch(t, c, []bson.D{d("$changeStreamSplitLargeEvent", d())})
	id := strings.Repeat("k", 5<<10)
	insert(t, c, d("_id", id, "p", strings.Repeat("x", 16<<20-len(id)-64)))
	if got := s.fails(); got != 7182500 {
		t.Errorf("code %d: %v", got, s.Err())
	}
}

func TestSplitEvents(t *testing.T) {
	_, client := start(t, devmongo.Config{Release: "7.0", OplogBytes: 256 << 20})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	lookup := func(o *options.ChangeStreamOptionsBuilder) { o.SetFullDocument(options.UpdateLookup) }
	split := []bson.D{d("$changeStreamSplitLargeEvent", d())}
	s := watch(t, c, split, lookup)
	insert(t, c, d("_id", 1, "p", strings.Repeat("x", 9<<20)))
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("p", strings.Repeat("y", 9<<20)))); err != nil {
		t.Fatal(err)
	}
	insert(t, c, d("_id", 2))
	whole := s.next()
	if !whole.Lookup("splitEvent").IsZero() {
		t.Error("a small event is split")
	}
	first, second := s.next(), s.next()
	for i, f := range []bson.Raw{first, second} {
		if f.Lookup("splitEvent", "fragment").Int32() != int32(i+1) || f.Lookup("splitEvent", "of").Int32() != 2 {
			t.Error(f.Lookup("splitEvent"))
		}
	}
	if text(first, "_id", "_data") >= text(second, "_id", "_data") || text(first, "operationType") != "update" {
		t.Error("fragments are out of order")
	}
	if first.Lookup("fullDocument").IsZero() == second.Lookup("fullDocument").IsZero() {
		t.Error("the document is in one of them")
	}
	equal(t, s.types(1), []string{"insert"})
	again := watch(t, c, split, lookup, resumeAfter(first.Lookup("_id").Document()))
	if e := again.next(); e.Lookup("splitEvent", "fragment").Int32() != 2 {
		t.Error("after the first fragment comes", e.Lookup("splitEvent"))
	}
	equal(t, again.types(1), []string{"insert"})
	after := watch(t, c, split, lookup, startAfter(second.Lookup("_id").Document()))
	equal(t, after.types(1), []string{"insert"})
	_, err := tryWatch(t, c, append([]bson.D{d("$project", d("fullDocument", 0))}, split...), lookup, resumeAfter(first.Lookup("_id").Document()))
	wantCode(t, err, 280) // no longer large enough to be split
}

func TestExpandedEvents(t *testing.T) {
	_, client := start(t, devmongo.Config{Release: "7.0"})
	db := client.Database("a")
	s := watch(t, db, nil, func(o *options.ChangeStreamOptionsBuilder) {
		o.SetShowExpandedEvents(true).SetFullDocument(options.WhenAvailable).SetFullDocumentBeforeChange(options.WhenAvailable)
	})
	plain := watch(t, db, nil)
	run(t, client, "a", d("create", "x"))
	run(t, client, "a", d("createIndexes", "x", "indexes", bson.A{d("key", d("k", 1), "name", "k_1")}))
	run(t, client, "a", d("collMod", "x", "changeStreamPreAndPostImages", d("enabled", true)))
	c := db.Collection("x")
	insert(t, c, d("_id", 1, "l", bson.A{1, 2, 3}, "5", d("6", 1)))
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), d("$set", d("5.6", 2, "l.0", 7))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateOne(t.Context(), d("_id", 1), bson.A{d("$set", d("l", d("$slice", bson.A{"$l", 1})))}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteOne(t.Context(), d("_id", 1)); err != nil {
		t.Fatal(err)
	}
	var events []bson.Raw
	for range 7 {
		events = append(events, s.next())
	}
	var types []string
	for _, e := range events {
		types = append(types, text(e, "operationType"))
		if e.Lookup("wallTime").IsZero() || e.Lookup("collectionUUID").IsZero() {
			t.Errorf("no time or no UUID: %s", e)
		}
		resumed := watch(t, db, nil, resumeAfter(e.Lookup("_id").Document()), func(o *options.ChangeStreamOptionsBuilder) { o.SetShowExpandedEvents(true) })
		resumed.TryNext(t.Context())
		if err := resumed.Err(); err != nil {
			t.Errorf("resume after %s: %v", types[len(types)-1], err)
		}
	}
	equal(t, types, []string{"create", "createIndexes", "modify", "insert", "update", "update", "delete"})
	if e := events[4]; e.Lookup("fullDocumentBeforeChange", "5", "6").Int32() != 1 || e.Lookup("fullDocument", "5", "6").Int32() != 2 ||
		e.Lookup("updateDescription", "disambiguatedPaths", "5.6").IsZero() || !e.Lookup("updateDescription", "disambiguatedPaths", "l.0").IsZero() {
		t.Error(e)
	}
	if e := events[5]; text(e, "updateDescription", "truncatedArrays", "0", "field") != "l" || e.Lookup("updateDescription", "truncatedArrays", "0", "newSize").Int32() != 1 {
		t.Error(e)
	}
	if e := events[6]; e.Lookup("fullDocumentBeforeChange", "l", "0").Int32() != 7 {
		t.Error(e)
	}
	equal(t, plain.types(4), []string{"insert", "update", "update", "delete"})
}
