package devmongo_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

func TestUpdates(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("updates")
	for _, tc := range []struct {
		name                string
		before, update, end any
		code                int
	}{
		{"set", d("a", 1), d("$set", d("a", 2, "b", 3)), d("a", 2, "b", 3), 0},
		{"set below", d("n", d("x", 1)), d("$set", d("n.y", 2, "m.k", 3)), d("n", d("x", 1, "y", 2), "m", d("k", 3)), 0},
		{"set an element", d("l", bson.A{1, 2, 3}), d("$set", d("l.1", 9)), d("l", bson.A{1, 9, 3}), 0},
		{"set beyond the end", d("l", bson.A{1}), d("$set", d("l.3", 9)), d("l", bson.A{1, nil, nil, 9}), 0},
		{"set in an element", d("l", bson.A{d("a", 1)}), d("$set", d("l.0.a", 2)), d("l", bson.A{d("a", 2)}), 0},
		{"unset", d("a", 1, "b", 2), d("$unset", d("a", "", "zzz", "")), d("b", 2), 0},
		{"unset an element", d("l", bson.A{1, 2}), d("$unset", d("l.0", "")), d("l", bson.A{nil, 2}), 0},
		{"inc", d("a", 1), d("$inc", d("a", 2, "b", 5)), d("a", 3, "b", 5), 0},
		{"inc beyond 32 bits", d("a", 1<<31-1), d("$inc", d("a", 1)), d("a", int64(1)<<31), 0},
		{"inc by a double", d("a", 1), d("$inc", d("a", 0.5)), d("a", 1.5), 0},
		{"max and min", d("a", 1, "b", 1, "c", "x"), d("$max", d("a", 2, "b", 0, "c", 5), "$min", d("d", 4)), d("a", 2, "b", 1, "c", "x", "d", 4), 0},
		{"push", d("l", bson.A{1}), d("$push", d("l", 2, "m", 3)), d("l", bson.A{1, 2}, "m", bson.A{3}), 0},
		{"set on insert is nothing here", d("a", 1), d("$setOnInsert", d("a", 2)), d("a", 1), 0},
		{"replace", d("a", 1, "b", 2), d("c", 3), d("c", 3), 0},
		{"pipeline", d("a", 1, "b", d("c", 2)), bson.A{d("$set", d("d", "$b.c", "e", d("$add", bson.A{"$a", 41}), "b.x", "lit"))}, d("a", 1, "b", d("c", 2, "x", "lit"), "d", 2, "e", 42), 0},
		{"two stages", d("a", 1), bson.A{d("$set", d("b", "$a")), d("$set", d("c", d("$add", bson.A{"$b", 1})))}, d("a", 1, "b", 1, "c", 2), 0},
		{"missing stays missing", d("a", 1), bson.A{d("$set", d("b", "$nope", "c", d("$ifNull", bson.A{"$nope", 7})))}, d("a", 1, "c", 7), 0},

		{"inc of text", d("a", "x"), d("$inc", d("a", 1)), nil, 14},
		{"inc by text", d("a", 1), d("$inc", d("a", "x")), nil, 14},
		{"path through a number", d("a", 1), d("$set", d("a.b", 1)), nil, 28},
		{"conflict", d("a", 1), d("$set", d("a", 1), "$inc", d("a.b", 1)), nil, 40},
		{"another _id", d("a", 1), d("$set", d("_id", 2)), nil, 66},
		{"push to a number", d("a", 1), d("$push", d("a", 1)), nil, 2},
		{"unknown modifier", d("a", 1), d("$frobnicate", d("a", 1)), nil, 9},
		{"pull from a number", d("a", 1), d("$pull", d("a", 1)), nil, 2},
		{"unsupported expression", d("a", 1), bson.A{d("$set", d("a", d("$concat", bson.A{"x"})))}, nil, 115},
		{"unknown variable", d("a", 1), bson.A{d("$set", d("a", "$$NOPE"))}, nil, 17276},
		{"unsupported stage", d("a", 1), bson.A{d("$project", d("a", 1))}, nil, 115},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := bson.E{Key: "_id", Value: tc.name}
			insert(t, c, append(bson.D{id}, tc.before.(bson.D)...))
			var err error
			if u, ok := tc.update.(bson.D); ok && u[0].Key[0] != '$' {
				_, err = c.ReplaceOne(t.Context(), bson.D{id}, u)
			} else {
				_, err = c.UpdateOne(t.Context(), bson.D{id}, tc.update)
			}
			wantCode(t, err, tc.code)
			if tc.code != 0 {
				return
			}
			var got bson.Raw
			if err := c.FindOne(t.Context(), bson.D{id}).Decode(&got); err != nil {
				t.Fatal(err)
			}
			want, _ := bson.Marshal(append(bson.D{id}, tc.end.(bson.D)...))
			if string(got) != string(want) {
				t.Errorf("got %s, want %s", got, bson.Raw(want))
			}
		})
	}
}

func TestUpserts(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("upserts")
	up := options.UpdateOne().SetUpsert(true)
	r, err := c.UpdateOne(t.Context(), d("_id", 1, "n.k", "v", "x", d("$gt", 3)), d("$set", d("a", 1), "$setOnInsert", d("b", 2), "$inc", d("c", 3)), up)
	if err != nil || r.UpsertedID != int32(1) || r.MatchedCount != 0 {
		t.Fatal(r, err)
	}
	if r, err = c.UpdateOne(t.Context(), d("_id", 1), d("$setOnInsert", d("b", 9), "$set", d("a", 2)), up); err != nil || r.ModifiedCount != 1 || r.UpsertedID != nil {
		t.Fatal(r, err)
	}
	r, err = c.ReplaceOne(t.Context(), d("_id", 2, "q", 1), d("z", 1), options.Replace().SetUpsert(true))
	if err != nil || r.UpsertedID != int32(2) {
		t.Fatal(r, err)
	}
	r, err = c.UpdateOne(t.Context(), d("_id", 3), bson.A{d("$set", d("epoch", d("$add", bson.A{d("$ifNull", bson.A{"$epoch", 0}), 1}), "at", "$$NOW"))}, up)
	if err != nil || r.UpsertedID != int32(3) {
		t.Fatal(r, err)
	}
	var docs []bson.M
	cur, err := c.Find(t.Context(), d(), options.Find().SetSort(d("_id", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := cur.All(t.Context(), &docs); err != nil || len(docs) != 3 {
		t.Fatal(docs, err)
	}
	if docs[0]["a"] != int32(2) || docs[0]["b"] != int32(2) || docs[0]["c"] != int32(3) || docs[1]["z"] != int32(1) || docs[1]["q"] != nil || docs[2]["epoch"] != int32(1) {
		t.Error(docs)
	}
	if at, ok := docs[2]["at"].(bson.DateTime); !ok || time.Since(at.Time()) > time.Minute {
		t.Error(docs[2])
	}
}

func TestFilters(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("filters")
	insert(t, c,
		d("_id", 1, "n", 1, "s", "a", "l", bson.A{1, 2}),
		d("_id", 2, "n", int64(2), "s", "b", "l", bson.A{3}, "o", d("x", 1)),
		d("_id", 3, "n", 3.0, "s", "c", "o", bson.A{d("x", 1), d("x", 2)}),
		d("_id", 4, "s", nil),
		d("_id", 5, "n", "text"))
	for _, tc := range []struct {
		name   string
		filter any
		ids    []int32
		code   int
	}{
		{"all", d(), []int32{1, 2, 3, 4, 5}, 0},
		{"numbers are numbers", d("n", 2), []int32{2}, 0},
		{"double", d("n", 3), []int32{3}, 0},
		{"range within a type", d("n", d("$gte", 2)), []int32{2, 3}, 0},
		{"range of text", d("n", d("$gt", "a")), []int32{5}, 0},
		{"between", d("n", d("$gt", 1, "$lt", 3)), []int32{2}, 0},
		{"in", d("s", d("$in", bson.A{"a", "c"})), []int32{1, 3}, 0},
		{"in with null", d("s", d("$in", bson.A{nil})), []int32{4, 5}, 0},
		{"not in", d("n", d("$nin", bson.A{1, 2})), []int32{3, 4, 5}, 0},
		{"not equal", d("n", d("$ne", 1)), []int32{2, 3, 4, 5}, 0},
		{"null is missing too", d("s", nil), []int32{4, 5}, 0},
		{"exists", d("n", d("$exists", true)), []int32{1, 2, 3, 5}, 0},
		{"not exists", d("n", d("$exists", false)), []int32{4}, 0},
		{"element", d("l", 2), []int32{1}, 0},
		{"whole array", d("l", bson.A{1, 2}), []int32{1}, 0},
		{"element by index", d("l.0", 3), []int32{2}, 0},
		{"below", d("o.x", 1), []int32{2, 3}, 0},
		{"below, in an array", d("o.x", d("$gt", 1)), []int32{3}, 0},
		{"not", d("n", d("$not", d("$gte", 2))), []int32{1, 4, 5}, 0},
		{"or", d("$or", bson.A{d("n", 1), d("s", "b")}), []int32{1, 2}, 0},
		{"and", d("$and", bson.A{d("n", d("$gt", 0)), d("s", "b")}), []int32{2}, 0},
		{"nor", d("$nor", bson.A{d("n", 1), d("s", "b")}), []int32{3, 4, 5}, 0},
		{"min key", d("n", d("$gt", bson.MinKey{})), []int32{1, 2, 3, 5}, 0},
		{"unknown operator", d("n", d("$frob", 1)), nil, 2},
		{"unknown top operator", d("$frob", 1), nil, 2},
		{"unsupported operator", d("n", d("$regex", "x")), nil, 115},
		{"unsupported expression", d("$expr", d()), nil, 115},
		{"in wants an array", d("n", d("$in", 1)), nil, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cur, err := c.Find(t.Context(), tc.filter, options.Find().SetSort(d("_id", 1)))
			wantCode(t, err, tc.code)
			if err != nil {
				return
			}
			var docs []struct {
				ID int32 `bson:"_id"`
			}
			if err := cur.All(t.Context(), &docs); err != nil {
				t.Fatal(err)
			}
			var ids []int32
			for _, x := range docs {
				ids = append(ids, x.ID)
			}
			equal(t, ids, tc.ids)
			n, err := c.CountDocuments(t.Context(), tc.filter)
			if err != nil || int(n) != len(tc.ids) {
				t.Errorf("counted %d, %v", n, err)
			}
		})
	}
}

func TestSortsProjectsAndPages(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("pages")
	for i := range 250 {
		insert(t, c, d("_id", (i*7)%250, "k", i%10, "o", d("x", i, "y", 1)))
	}
	var last any
	seen := 0
	for {
		filter := d()
		if last != nil {
			filter = d("_id", d("$gt", last))
		}
		cur, err := c.Find(t.Context(), filter, options.Find().SetSort(d("_id", 1)).SetLimit(100).SetProjection(d("o.x", 1)))
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.D
		if err := cur.All(t.Context(), &docs); err != nil {
			t.Fatal(err)
		}
		if len(docs) == 0 {
			break
		}
		for _, x := range docs {
			if x[0].Value != int32(seen) || len(x) != 2 || len(x[1].Value.(bson.D)) != 1 {
				t.Fatalf("document %d is %v", seen, x)
			}
			seen++
		}
		last = docs[len(docs)-1][0].Value
	}
	if seen != 250 {
		t.Errorf("saw %d", seen)
	}
	cur, err := c.Find(t.Context(), d(), options.Find().SetSort(d("k", -1, "o.x", 1)).SetSkip(10).SetLimit(10).SetBatchSize(3).SetProjection(d("o", 0)))
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.D
	if err := cur.All(t.Context(), &docs); err != nil || len(docs) != 10 {
		t.Fatal(docs, err)
	}
	for _, x := range docs {
		if len(x) != 2 || x[1].Value != int32(9) {
			t.Errorf("%v", x)
		}
	}
	agg, err := c.Aggregate(t.Context(), []bson.D{d("$match", d("k", 3)), d("$sort", d("_id", -1)), d("$skip", 1), d("$limit", 3), d("$project", d("k", 1, "_id", 0)), d("$count", "n")})
	if err != nil {
		t.Fatal(err)
	}
	if err := agg.All(t.Context(), &docs); err != nil || len(docs) != 1 || docs[0][0].Value != int32(3) {
		t.Error(docs, err)
	}
	_, err = c.Find(t.Context(), d(), options.Find().SetProjection(d("a", 1, "b", 0)))
	wantCode(t, err, 31254)
	_, err = c.Aggregate(t.Context(), []bson.D{d("$lookup", d())})
	wantCode(t, err, 115)
	_, err = c.Find(t.Context(), d(), options.Find().SetCollation(&options.Collation{Locale: "de"}))
	wantCode(t, err, 115)
}

func TestNumbersAreOneID(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("ids")
	insert(t, c, d("_id", 1))
	ten, _ := bson.ParseDecimal128("1.0")
	for _, id := range []any{int64(1), 1.0, ten} {
		_, err := c.InsertOne(t.Context(), d("_id", id))
		if !mongo.IsDuplicateKeyError(err) {
			t.Errorf("%T: %v", id, err)
		}
		if n, err := c.CountDocuments(t.Context(), d("_id", id)); n != 1 || err != nil {
			t.Errorf("%T: found %d, %v", id, n, err)
		}
	}
	insert(t, c, d("_id", "1"), d("_id", d("n", 1)))
	_, err := c.InsertOne(t.Context(), d("_id", d("n", 1.0)))
	wantCode(t, err, 11000)
	_, err = c.InsertOne(t.Context(), d("_id", bson.A{1}))
	wantCode(t, err, 53)
}

func TestBulkWriteErrorsHaveTheirIndex(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("bulk")
	models := []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(d("_id", 1)),
		mongo.NewInsertOneModel().SetDocument(d("_id", 1)),
		mongo.NewInsertOneModel().SetDocument(d("_id", 2)),
		mongo.NewInsertOneModel().SetDocument(d("_id", 2)),
	}
	for _, tc := range []struct {
		ordered bool
		indexes []int
		stored  int64
	}{{true, []int{1}, 1}, {false, []int{1, 3}, 2}} {
		_, err := c.BulkWrite(t.Context(), models, options.BulkWrite().SetOrdered(tc.ordered))
		var be mongo.BulkWriteException
		if !errors.As(err, &be) {
			t.Fatal(err)
		}
		var indexes []int
		for _, e := range be.WriteErrors {
			indexes = append(indexes, e.Index)
			if e.Code != 11000 {
				t.Error(e)
			}
		}
		equal(t, indexes, tc.indexes)
		if n, err := c.CountDocuments(t.Context(), d()); n != tc.stored || err != nil {
			t.Errorf("stored %d, %v", n, err)
		}
		if err := c.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A fenced commit: only the update that matches its epoch changes anything.
	insert(t, c, d("_id", 1, "epoch", 1), d("_id", 2, "epoch", 9))
	r, err := c.BulkWrite(t.Context(), []mongo.WriteModel{
		mongo.NewUpdateOneModel().SetFilter(d("_id", 1, "epoch", 1)).SetUpdate(d("$set", d("p", 5))),
		mongo.NewUpdateOneModel().SetFilter(d("_id", 2, "epoch", 1)).SetUpdate(d("$set", d("p", 5))),
		mongo.NewDeleteOneModel().SetFilter(d("_id", 3)),
		mongo.NewReplaceOneModel().SetFilter(d("_id", 4)).SetReplacement(d("x", 1)).SetUpsert(true),
	}, options.BulkWrite().SetOrdered(false))
	if err != nil || r.MatchedCount != 1 || r.ModifiedCount != 1 || r.UpsertedCount != 1 || r.UpsertedIDs[3] != int32(4) {
		t.Error(r, err)
	}
}

func TestOneAndMany(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("many")
	insert(t, c, d("k", 1), d("k", 1), d("k", 1), d("k", 2))
	if r, err := c.UpdateOne(t.Context(), d("k", 1), d("$set", d("u", 1))); err != nil || r.ModifiedCount != 1 {
		t.Error(r, err)
	}
	if r, err := c.UpdateMany(t.Context(), d("k", 1), d("$set", d("u", 1))); err != nil || r.MatchedCount != 3 || r.ModifiedCount != 2 {
		t.Error(r, err)
	}
	if r, err := c.DeleteOne(t.Context(), d("k", 1)); err != nil || r.DeletedCount != 1 {
		t.Error(r, err)
	}
	if r, err := c.DeleteMany(t.Context(), d("k", 1)); err != nil || r.DeletedCount != 2 {
		t.Error(r, err)
	}
	if n, err := c.EstimatedDocumentCount(t.Context()); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestFindAndModify(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("fam")
	insert(t, c, d("_id", 1, "n", 3), d("_id", 2, "n", 1))
	var got bson.M
	after := options.FindOneAndUpdate().SetReturnDocument(options.After).SetSort(d("n", 1)).SetProjection(d("_id", 0))
	if err := c.FindOneAndUpdate(t.Context(), d(), d("$inc", d("n", 10)), after).Decode(&got); err != nil || got["n"] != int32(11) || len(got) != 1 {
		t.Error(got, err)
	}
	got = nil
	if err := c.FindOneAndUpdate(t.Context(), d("_id", 1), d("$inc", d("n", 1))).Decode(&got); err != nil || got["n"] != int32(3) {
		t.Error(got, err)
	}
	if err := c.FindOneAndUpdate(t.Context(), d("_id", 7), d("$set", d("n", 1))).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Error(err)
	}
	up := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
	if err := c.FindOneAndUpdate(t.Context(), d("_id", 7), d("$set", d("n", 5)), up).Decode(&got); err != nil || got["n"] != int32(5) {
		t.Error(got, err)
	}
	if err := c.FindOneAndReplace(t.Context(), d("_id", 7), d("z", 1)).Decode(&got); err != nil {
		t.Error(err)
	}
	if err := c.FindOneAndDelete(t.Context(), d("_id", 7)).Decode(&got); err != nil || got["z"] != int32(1) {
		t.Error(got, err)
	}
	if n, _ := c.CountDocuments(t.Context(), d()); n != 2 {
		t.Error(n)
	}
}

func TestCollections(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	db := client.Database("colls")
	if err := db.CreateCollection(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.CreateCollection(t.Context(), "one"), 48)
	insert(t, db.Collection("two"), d("_id", 1))
	name, err := db.Collection("two").Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: d("x", 1)})
	if err != nil || name != "x_1" {
		t.Fatal(name, err)
	}
	_, err = db.Collection("two").Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: d("u", 1), Options: options.Index().SetUnique(true)})
	wantCode(t, err, 115)
	specs, err := db.Collection("two").Indexes().ListSpecifications(t.Context())
	if err != nil || len(specs) != 2 || specs[1].Name != "x_1" {
		t.Error(specs, err)
	}
	if err := db.Collection("two").Indexes().DropOne(t.Context(), "x_1"); err != nil {
		t.Error(err)
	}
	list, err := db.ListCollectionSpecifications(t.Context(), d())
	if err != nil || len(list) != 2 || list[0].Name != "one" || list[1].UUID == nil {
		t.Error(list, err)
	}
	wantCode(t, client.Database("admin").RunCommand(t.Context(), d("renameCollection", "colls.one", "to", "colls.two")).Err(), 48)
	run(t, client, "admin", d("renameCollection", "colls.one", "to", "colls.two", "dropTarget", true))
	names, err := db.ListCollectionNames(t.Context(), d())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, names, []string{"two"})
	if err := db.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	dbs, err := client.ListDatabaseNames(t.Context(), d("name", d("$nin", bson.A{"admin", "config", "local"})))
	if err != nil || len(dbs) != 0 {
		t.Error(dbs, err)
	}
	wantCode(t, db.RunCommand(t.Context(), d("noSuchCommand", 1)).Err(), 59)
	wantCode(t, db.RunCommand(t.Context(), d("mapReduce", "x")).Err(), 115)
	wantCode(t, db.RunCommand(t.Context(), d("insert", "x.$y", "documents", bson.A{d()})).Err(), 73)
}

// What stands for elements of arrays is resolved by the statement's filter and its arrayFilters,
// also in findAndModify.
func TestPositionalUpdates(t *testing.T) {
	_, client := start(t, devmongo.Config{Release: "7.0"})
	c := client.Database("a").Collection("x")
	stream := watch(t, c, nil, func(o *options.ChangeStreamOptionsBuilder) { o.SetShowExpandedEvents(true) })
	insert(t, c, d("_id", 1, "l", bson.A{d("k", 1), d("k", 2)}))
	byKey := bson.A{d("e.k", 2)}
	if _, err := c.UpdateOne(t.Context(), d("l.k", 1), d("$set", d("l.$.v", "a", "l.$[e].v", "b")), options.UpdateOne().SetArrayFilters(byKey)); err != nil {
		t.Fatal(err)
	}
	modified := c.FindOneAndUpdate(t.Context(), d("_id", 1), d("$set", d("l.$[e].v", "c")),
		options.FindOneAndUpdate().SetArrayFilters(byKey).SetReturnDocument(options.After))
	raw, err := modified.Raw()
	if err != nil || text(raw, "l", "0", "v") != "a" || text(raw, "l", "1", "v") != "c" {
		t.Errorf("%s, %v", raw, err)
	}
	equal(t, stream.types(3), []string{"create", "insert", "update"})
	if e := stream.next(); text(e, "updateDescription", "updatedFields", "l.1.v") != "c" {
		t.Error(e)
	}
}
