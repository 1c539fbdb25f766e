package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A writer changes documents. Each document describes itself: n is the number of its last write,
// born that of its insert, updated and replaced those of its last change by modifiers and by
// replacement; home is the collection that it was inserted into, with a number where that is
// replaced.
type writer struct {
	cluster *cluster
	ids     map[string][]any // by collection
	born    map[string]int64 // of the documents that exist, by collection and _id
	home    string           // of the collection vol

	mu struct {
		sync.Mutex
		past map[string][]string // the last writes of a document
	}
}

// stable returns the collections that are never replaced; vol is, and old and draft come and go.
func stable() []string { return []string{"a", "b", "c"} }

func newWriter(c *cluster) *writer {
	w := &writer{cluster: c, ids: make(map[string][]any), born: make(map[string]int64), home: "vol"}
	w.mu.past = make(map[string][]string)
	r := dice(c.seed, "ids", 0)
	for _, coll := range append(stable(), "vol") {
		for k := range 80 {
			w.ids[coll] = append(w.ids[coll], newID(r, k))
		}
	}
	return w
}

// newID returns an _id of one of many types. Some of them are in several collections.
func newID(r *rand.Rand, k int) any {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Uint64()), r.Uint64())
	switch k % 9 {
	case 0:
		return int32(k)
	case 1:
		return int64(k) << 40
	case 2:
		return float64(k) + 0.5
	case 3:
		return bson.ObjectID(b[:12])
	case 4:
		return bson.Binary{Subtype: 4, Data: b}
	case 5:
		return bson.NewDateTimeFromTime(time.UnixMilli(1_700_000_000_000 + int64(k)*1001))
	case 6:
		return bson.D{{Key: "b", Value: int32(k)}, {Key: "a", Value: "x"}}
	case 7:
		return bson.Timestamp{T: uint32(k), I: 1}
	default:
		return fmt.Sprint("s", k)
	}
}

// keyOf names a document by its namespace, or home, and its _id.
func keyOf(ns string, id any) string {
	data, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: id}}, false, false)
	if err != nil {
		panic(err) // of our own values
	}
	var o struct{ V any }
	if err := parse(data, &o); err != nil {
		panic(err)
	}
	return ns + " " + text(o.V)
}

// document returns a document as it is inserted (n is born), or replaced.
func document(r *rand.Rand, id any, home string, born, n int64) bson.D {
	replaced := int64(0)
	if n > born {
		replaced = n
	}
	group := int32(crc32.ChecksumIEEE([]byte(keyOf("", id))) % 4) // the same for ever
	d := bson.D{
		{Key: "_id", Value: id}, {Key: "home", Value: home}, {Key: "born", Value: born}, {Key: "n", Value: n}, {Key: "updated", Value: int64(0)},
		{Key: "replaced", Value: replaced}, {Key: "group", Value: group}, {Key: "v", Value: int32(r.IntN(10))}, {Key: "total", Value: float64(r.IntN(200)) / 2},
		{Key: "tag", Value: pick(r, "a", "b", "c", "d")}, {Key: "tags", Value: bson.A{pick(r, "x", "y", "z")}},
	}
	if r.IntN(3) > 0 {
		d = append(d, bson.E{Key: "sub", Value: bson.D{{Key: "k", Value: int32(r.IntN(3))}, {Key: "l", Value: bson.A{int32(1), int32(r.IntN(5))}}}})
	}
	return d
}

// modifiers returns an update of some fields.
func modifiers(r *rand.Rand, n int64) bson.D {
	set := bson.D{{Key: "n", Value: n}, {Key: "updated", Value: n}, {Key: "v", Value: int32(r.IntN(10))}}
	if r.IntN(2) == 0 {
		set = append(set, pick(r, bson.E{Key: "tags", Value: bson.A{pick(r, "x", "y")}}, bson.E{Key: "tag", Value: pick(r, "a", "d")}))
	}
	more := pick(r, bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "total", Value: 0.5}}}}, bson.D{{Key: "$unset", Value: bson.D{{Key: "sub", Value: ""}}}},
		bson.D{{Key: "$max", Value: bson.D{{Key: "sub.k", Value: int32(r.IntN(3))}}}})
	return append(bson.D{{Key: "$set", Value: set}}, more...)
}

// remember notes a write. The key is that of the stable name of the collection.
func (w *writer) remember(coll string, id any, what string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(coll, id)
	list := append(w.mu.past[key], fmt.Sprintf("%s %s n=%d", w.cluster.since(), what, n))
	w.mu.past[key] = list[max(0, len(list)-8):]
}

// history returns the last writes of a document that a copy knows by namespace or home, and _id.
func (w *writer) history(key string) []string {
	ns, id, _ := strings.Cut(key, " ")
	coll := strings.TrimPrefix(ns, database+".")
	if !slices.Contains(stable(), coll) {
		coll = "vol"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.past[coll+" "+id])
}

// load makes the collections and most documents; each collection has one that changes all the time,
// and b a large one.
func (w *writer) load(ctx context.Context) error {
	r := dice(w.cluster.seed, "load", 0)
	for _, coll := range append(stable(), "vol") {
		for _, id := range w.ids[coll] {
			if r.IntN(5) > 0 {
				if err := w.write(ctx, r, coll, id, "insert"); err != nil {
					return err
				}
			}
		}
		n := w.cluster.writes.Add(1)
		if _, err := w.cluster.db.Collection(coll).InsertOne(ctx, document(r, "hot", coll, n, n)); err != nil {
			return err
		}
	}
	n := w.cluster.writes.Add(1)
	large := append(document(r, "large", "b", n, n), bson.E{Key: "pad", Value: strings.Repeat("p", 270_000)})
	_, err := w.cluster.db.Collection("b").InsertOne(ctx, large)
	return err
}

// write writes one document. It replaces an impossible operation by a possible one.
func (w *writer) write(ctx context.Context, r *rand.Rand, coll string, id any, op string) (err error) {
	key := keyOf(coll, id)
	n := w.cluster.writes.Add(1)
	c := w.cluster.db.Collection(coll)
	by := bson.D{{Key: "_id", Value: id}}
	home := coll
	born := w.born[key]
	if coll == "vol" {
		home = w.home
	}
	switch {
	case born == 0 && op == "delete":
		return nil
	case born == 0:
		op = "insert"
	case op == "insert":
		op = "replace"
	}
	switch op {
	case "insert":
		_, err = c.InsertOne(ctx, document(r, id, home, n, n))
		w.born[key] = n
	case "replace":
		_, err = c.ReplaceOne(ctx, by, document(r, id, home, born, n))
	case "delete":
		_, err = c.DeleteOne(ctx, by)
		delete(w.born, key)
	case "pipeline":
		_, err = c.UpdateOne(ctx, by, bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}, {Key: "v", Value: int32(r.IntN(10))}}}}})
	default:
		_, err = c.UpdateOne(ctx, by, modifiers(r, n))
	}
	w.remember(coll, id, op, n)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	return nil
}

// act writes until the context ends, and leaves nothing half done.
func (w *writer) act(ctx context.Context, round int) (err error) {
	r := dice(w.cluster.seed, "writer", round)
	whole := context.WithoutCancel(ctx)
	hot := make(chan struct{})
	go func() { defer close(hot); w.heat(ctx, round, 120*time.Millisecond) }()
	for err == nil && sleep(ctx, 6*time.Millisecond) {
		coll := pick(r, "a", "a", "b", "b", "c", "vol")
		id := pick(r, w.ids[coll]...)
		switch k := r.IntN(1000); {
		case k < 50:
			err = w.transaction(whole, r)
		case k < 53:
			err = w.burst(whole, r, pick(r, stable()...))
		case k < 60:
			err = w.replaceCollection(whole, r)
		default:
			err = w.write(whole, r, coll, id, pick(r, "delete", "delete", "replace", "replace", "pipeline", "update", "update", "update", "update"))
		}
	}
	<-hot
	return err
}

// heat updates the documents that change all the time, and the large one now and then.
func (w *writer) heat(ctx context.Context, round int, pace time.Duration) {
	r := dice(w.cluster.seed, "hot", round)
	whole := context.WithoutCancel(ctx)
	for i := 0; sleep(ctx, 4*time.Millisecond+upTo(r, pace)); i++ {
		coll := stable()[i%3]
		id := "hot"
		n := w.cluster.writes.Add(1)
		if i%15 == 0 {
			coll, id = "b", "large"
		}
		if _, err := w.cluster.db.Collection(coll).UpdateOne(whole, bson.D{{Key: "_id", Value: id}}, modifiers(r, n)); err != nil {
			w.cluster.tell("update the %s document: %v", id, err)
		}
		w.remember(coll, id, "update", n)
	}
}

func (w *writer) transaction(ctx context.Context, r *rand.Rand) error {
	return w.cluster.client.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			for range 2 + r.IntN(5) {
				coll := pick(r, stable()...)
				if err := w.write(ctx, r, coll, pick(r, w.ids[coll]...), pick(r, "update", "update", "replace", "delete")); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		return err
	})
}

// burst is hundreds of updates in one request.
func (w *writer) burst(ctx context.Context, r *rand.Rand, coll string) error {
	var models []mongo.WriteModel
	for range 600 {
		if id := pick(r, w.ids[coll]...); w.born[keyOf(coll, id)] > 0 {
			n := w.cluster.writes.Add(1)
			models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).SetUpdate(modifiers(r, n)))
			w.remember(coll, id, "update in a burst", n)
		}
	}
	_, err := w.cluster.db.Collection(coll).BulkWrite(ctx, models)
	return err
}

// replaceCollection drops vol, renames it away, or renames another collection over it.
func (w *writer) replaceCollection(ctx context.Context, r *rand.Rand) (err error) {
	kind := pick(r, "drop", "rename away", "rename over", "rename over")
	w.cluster.tell("vol: %s", kind)
	rename := func(from, to string) error {
		return w.cluster.client.Database("admin").RunCommand(ctx, bson.D{
			{Key: "renameCollection", Value: database + "." + from}, {Key: "to", Value: database + "." + to}, {Key: "dropTarget", Value: true},
		}).Err()
	}
	switch kind {
	case "drop":
		err = w.cluster.db.Collection("vol").Drop(ctx)
	case "rename away":
		err = rename("vol", "old")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	into := "vol"
	if kind == "rename over" {
		into = "draft"
	}
	for _, id := range w.ids["vol"] {
		delete(w.born, keyOf("vol", id))
	}
	w.home = fmt.Sprintf("vol.%d", w.cluster.writes.Add(1))
	for _, k := range r.Perm(len(w.ids["vol"]))[:10+r.IntN(30)] {
		id := w.ids["vol"][k]
		n := w.cluster.writes.Add(1)
		if _, err := w.cluster.db.Collection(into).InsertOne(ctx, document(r, id, w.home, n, n)); err != nil {
			return fmt.Errorf("fill %s: %w", into, err)
		}
		w.born[keyOf("vol", id)] = n
		w.remember("vol", id, "insert into "+into, n)
	}
	if kind == "rename over" {
		return rename("draft", "vol")
	}
	return nil
}

// marker is the _id of the document that ends a round in every collection.
func marker(round int) string { return fmt.Sprint("marker-", round) }

// mark writes the markers: they match every filter, and have every operation. It returns the
// collections that exist.
func (w *writer) mark(ctx context.Context, round int) ([]string, error) {
	collections, err := w.cluster.db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	for _, coll := range collections {
		c := w.cluster.db.Collection(coll)
		n := w.cluster.writes.Add(3)
		by := bson.D{{Key: "_id", Value: marker(round)}}
		d := append(bson.D{}, by...)
		d = append(d, bson.D{
			{Key: "home", Value: "marker." + coll}, {Key: "born", Value: n - 2}, {Key: "n", Value: n - 2}, {Key: "updated", Value: int64(0)},
			{Key: "replaced", Value: int64(0)}, {Key: "group", Value: int32(1)}, {Key: "v", Value: int32(2)}, {Key: "total", Value: 99.5}, {Key: "tag", Value: "a"},
			{Key: "tags", Value: bson.A{"x"}}, {Key: "sub", Value: bson.D{{Key: "k", Value: int32(1)}}},
		}...)
		if _, err := c.InsertOne(ctx, d); err != nil {
			return nil, fmt.Errorf("insert marker: %w", err)
		}
		d[3].Value, d[5].Value = n-1, n-1
		if _, err := c.ReplaceOne(ctx, by, d); err != nil {
			return nil, fmt.Errorf("replace marker: %w", err)
		}
		update := bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}, {Key: "updated", Value: n}}}}
		if _, err := c.UpdateOne(ctx, by, update); err != nil {
			return nil, fmt.Errorf("update marker: %w", err)
		}
	}
	return collections, nil
}

// A fact is a document that exists.
type fact struct {
	ns, key, homeKey           string
	n, born, updated, replaced int64
	doc                        object
}

// facts returns the documents that exist.
func (w *writer) facts(ctx context.Context, collections []string) (facts []*fact, err error) {
	for _, coll := range collections {
		cursor, err := w.cluster.db.Collection(coll).Find(ctx, bson.D{})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", coll, err)
		}
		var all []bson.Raw
		if err := cursor.All(ctx, &all); err != nil {
			return nil, fmt.Errorf("read %s: %w", coll, err)
		}
		for _, raw := range all {
			data, err := bson.MarshalExtJSON(raw, false, false)
			if err != nil {
				return nil, err
			}
			f := &fact{ns: database + "." + coll}
			if err := parse(data, &f.doc); err != nil {
				return nil, err
			}
			id := text(f.doc["_id"])
			f.key = f.ns + " " + id
			f.homeKey = fmt.Sprint(f.doc["home"], " ", id)
			f.n, f.born, f.updated, f.replaced = number(f.doc["n"]), number(f.doc["born"]), number(f.doc["updated"]), number(f.doc["replaced"])
			facts = append(facts, f)
		}
	}
	return facts, nil
}

// An object is a document in relaxed Extended JSON, with numbers as they are written.
type object = map[string]any

func parse(data []byte, to any) error {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	return d.Decode(to)
}

// text returns the same text for equal values, however the transports write numbers and dates. Long
// strings are shortened.
func text(v any) string {
	data, err := json.Marshal(plain(v))
	if err != nil {
		panic(err) // of decoded JSON
	}
	return string(data)
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return f
		}
	case string:
		if len(v) > 1000 {
			return fmt.Sprintf("%.10s… of %d", v, len(v))
		}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case object:
		fields := make(object, len(v))
		for name, field := range v {
			fields[name] = plain(field)
		}
		if date, ok := v["$date"].(string); ok {
			if t, err := time.Parse(time.RFC3339Nano, date); err == nil {
				fields["$date"] = t.UnixMilli()
			}
		}
		return fields
	}
	return v
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}
