package node

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/wake"
)

// Live queries follow everything that can be done to documents: after each pause a query that says
// that it is whole has what find returns, and each query becomes whole. The model is MongoDB
// itself.
func TestLiveQueriesFollowEverything(t *testing.T) {
	t.Parallel()
	endlessChecks(t)
	followEverything(t, 20*time.Second, 0)
}

// endlessChecks lets the time or the steps end the checks.
func endlessChecks(t *testing.T) {
	if err := flag.Set("rapid.checks", "100000"); err != nil {
		t.Fatal(err)
	}
}

// followEverything plays random steps against each kind of server for a share of the time, or until
// so many steps have been made.
func followEverything(t *testing.T, most time.Duration, steps int64) {
	modes := []struct{ release, full string }{{"4.4", "default"}, {"4.4", "updateLookup"}, {"6.0", "default"}, {"7.0", "default"}, {"8.0", "updateLookup"}}
	for _, mode := range modes {
		t.Run(mode.release+" "+mode.full, func(t *testing.T) {
			s := newLiveStage(t, mode.release, mode.full)
			until := time.Now().Add(most / time.Duration(len(modes)))
			rapid.Check(t, func(t *rapid.T) {
				if !s.failed && time.Now().After(until) || steps > 0 && s.steps.Load() > steps/int64(len(modes)) {
					return
				}
				s.play(t)
			})
			t.Logf("%d steps", s.steps.Load())
		})
	}
}

// A liveStage is a node whose address stays the same, for as many plays as there is time for.
type liveStage struct {
	*rig

	address string
	full    string
	node    *live
	plays   int
	steps   atomic.Int64
	failed  bool // what has failed is tried again, whatever the time
}

func newLiveStage(t *testing.T, release, full string) *liveStage {
	s := &liveStage{address: devmongotest.FreeAddress(), full: full}
	// An idle log moves at once, so that no pause waits for it.
	s.rig = newRig(t, devmongo.Config{Release: release, NoopEvery: 100 * time.Millisecond}, "STREAMER_RESCAN_PAGE_SIZE=3", "STREAMER_RESCAN_RATE=100000", "STREAMER_MONGODB_FULL_DOCUMENT="+full,
		"STREAMER_GRPC_LISTEN="+s.address)
	s.node = s.beginWith(nil)
	return s
}

// A livePlay is one client with its queries, and the documents that are changed.
type livePlay struct {
	*liveStage

	t       *rapid.T
	client  *client.Client
	queries map[string]*watched    // by collection and filter
	apart   atomic.Pointer[string] // why the client is not connected
	end     func()
}

// A watched is a live query, and a signal whenever it has changed.
type watched struct {
	*client.LiveQuery

	changed chan struct{}
}

func (s *liveStage) play(t *rapid.T) {
	s.plays++
	p := &livePlay{liveStage: s, t: t, end: func() {}}
	s.failed = true
	for _, coll := range []string{"a", "b", "c"} {
		if err := s.coll(coll).Drop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { p.end() }()
	p.connect()
	t.Repeat(map[string]func(*rapid.T){
		"insert": p.insert, "replace": p.replace, "delete": p.delete, "modify": p.modify, "modify once more": p.modify, "compute": p.compute, "upsert": p.upsert,
		"collections": p.collections, "subscribe": p.subscribe, "disturb": p.disturb, "pause": p.pause,
	})
	p.pause(t)
	s.failed = false
}

// connect begins a process with queries.
func (p *livePlay) connect() {
	p.end()
	p.plays++
	c, err := client.New(client.Config{
		Addresses: []string{p.address}, Subscriber: fmt.Sprint("live", p.plays), Start: client.StartSnapshot, OnNotice: p.notice,
		ReconnectWait: time.Millisecond, MaxReconnectWait: 100 * time.Millisecond, StopTimeout: time.Second,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.client, p.queries = c, make(map[string]*watched)
	p.query("", "")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		if failed = c.Run(ctx); failed != nil {
			p.Logf("the client ended: %v", failed)
		}
	})
	p.end = func() {
		cancel()
		if running.Wait(); failed != nil {
			p.t.Errorf("the client ended: %v", failed)
		}
	}
}

// notice remembers why the client is not connected.
func (p *livePlay) notice(_ context.Context, n client.Notice) error {
	switch n := n.(type) {
	case client.Disconnected:
		text := n.Err.Error()
		p.apart.Store(&text)
	case client.Connected:
		p.apart.Store(nil)
	}
	return nil
}

func (p *livePlay) query(coll, filter string) {
	name := coll + "|" + filter
	if p.queries[name] != nil {
		return
	}
	w := &watched{changed: make(chan struct{}, 1)}
	changed := func() { wake.Notify(w.changed) }
	one, two := func(client.Document) { changed() }, func(_, _ client.Document) { changed() }
	var err error
	w.LiveQuery, err = p.client.Live(client.Subscription{ID: name, DB: "shop", Coll: coll, Filter: filter}, client.LiveCallbacks{Added: one, Changed: two, Removed: one, Whole: changed})
	if err != nil {
		p.t.Fatal(err)
	}
	p.queries[name] = w
}

func (p *livePlay) subscribe(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "new") > 0 {
		return
	}
	coll, filter := drawColl(t), ""
	if p.full == "updateLookup" && rapid.Bool().Draw(t, "filtered") {
		filter = oddFilter
	}
	p.query(coll, filter)
}

// oddFilter selects documents by a field that changes.
const oddFilter = "has(doc.a) && doc.a == 1"

// disturb begins a process anew, breaks the node's stream, or restarts the node; sometimes the log
// loses what is written meanwhile.
func (p *livePlay) disturb(t *rapid.T) {
	switch rapid.IntRange(0, 19).Draw(t, "disturbance") {
	case 0, 1:
		p.connect()
	case 2, 3:
		p.fail(times(1), 0, "getMore")
	case 4:
		if err := p.node.stop(); err != nil && !endsSo(err) {
			t.Fatal(err)
		}
		p.insert(t)
		p.delete(t)
		if rapid.Bool().Draw(t, "lost") {
			p.elsewhere(1)
			p.server.TruncateOplogBefore(p.server.ClusterTime())
		}
		p.node = p.beginWith(nil)
	}
}

// endsSo reports whether a node ends so without a defect of it on a machine that stands still: it
// has lost its terms, or cannot save its last checkpoints in time. Service managers start it again.
func endsSo(err error) bool {
	return fault.Of(err) == fault.NodeTermLost || err != nil && strings.Contains(err.Error(), "save the last checkpoints: ")
}

func drawColl(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "collection") }

func drawID(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		int32(1), int64(1) << 40, 2.5, "1", bson.ObjectID{1}, bson.D{{Key: "b", Value: int32(1)}, {Key: "a", Value: int32(2)}},
		bson.D{{Key: "1", Value: int32(1)}, {Key: "0", Value: int32(2)}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.DateTime(1), true, nil, bson.MinKey{},
	}).Draw(t, "_id")
}

func drawName(t *rapid.T, dots bool) string {
	names := []string{"a", "b", "0", "1", "01"}
	if dots {
		names = append(names, "a.b", "b.0", "a.0.b")
	}
	return rapid.SampledFrom(names).Draw(t, "name")
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0, 1:
		return int32(rapid.IntRange(0, 2).Draw(t, "int"))
	case 2:
		return float64(rapid.IntRange(0, 3).Draw(t, "double")) + 0.5
	case 3:
		return rapid.SampledFrom([]string{"", "x", "ü", "$x", "\x00"}).Draw(t, "text")
	case 4:
		return rapid.SampledFrom([]any{nil, true, int64(9007199254740993), bson.DateTime(1700000000123)}).Draw(t, "constant")
	case 5:
		list := bson.A{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, int32(rapid.IntRange(0, 3).Draw(t, "element")))
		}
		return list
	case 6:
		list := bson.A{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	default:
		return drawFields(t, depth-1)
	}
}

func drawFields(t *rapid.T, depth int) bson.D {
	d := bson.D{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		name := drawName(t, true)
		if !slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == name }) {
			d = append(d, bson.E{Key: name, Value: drawValue(t, depth)})
		}
	}
	return d
}

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// done notes a step. What MongoDB refuses changes nothing.
func (p *livePlay) done(t *rapid.T, err error) {
	p.steps.Add(1)
	if err != nil && !isRefusal(err) {
		t.Fatal(err)
	}
}

func isRefusal(err error) bool {
	_, is := errors.AsType[mongo.ServerError](err)
	return is
}

func (p *livePlay) insert(t *rapid.T) {
	_, err := p.coll(drawColl(t)).InsertOne(context.Background(), append(byID(drawID(t)), drawFields(t, 2)...))
	p.done(t, err)
}

func (p *livePlay) replace(t *rapid.T) {
	_, err := p.coll(drawColl(t)).ReplaceOne(context.Background(), byID(drawID(t)), drawFields(t, 2))
	p.done(t, err)
}

func (p *livePlay) delete(t *rapid.T) {
	_, err := p.coll(drawColl(t)).DeleteOne(context.Background(), byID(drawID(t)))
	p.done(t, err)
}

func (p *livePlay) upsert(t *rapid.T) {
	update := bson.D{{Key: "$set", Value: bson.D{{Key: drawPath(t), Value: drawValue(t, 1)}}}, {Key: "$setOnInsert", Value: bson.D{{Key: "new", Value: true}}}}
	_, err := p.coll(drawColl(t)).UpdateOne(context.Background(), byID(drawID(t)), update, options.UpdateOne().SetUpsert(true))
	p.done(t, err)
}

func drawPath(t *rapid.T) string {
	steps := []string{drawName(t, false)}
	for range rapid.IntRange(0, 2).Draw(t, "deeper") {
		steps = append(steps, rapid.SampledFrom([]string{"a", "b", "0", "1", "3", "$[]"}).Draw(t, "step"))
	}
	return strings.Join(steps, ".")
}

// modify applies one or two operators.
func (p *livePlay) modify(t *rapid.T) {
	update := bson.D{}
	opts := options.UpdateOne()
	for range rapid.IntRange(1, 2).Draw(t, "operators") {
		op := rapid.SampledFrom([]string{
			"$set", "$unset", "$inc", "$mul", "$min", "$max", "$bit", "$currentDate", "$rename", "$push", "$push each", "$addToSet", "$pop", "$pull", "$pullAll", "$[e]",
		}).Draw(t, "operator")
		path := drawPath(t)
		one := bson.E{Key: op}
		argument := any(int32(rapid.IntRange(-1, 2).Draw(t, "argument")))
		switch op {
		case "$set", "$min", "$max", "$push", "$addToSet":
			argument = drawValue(t, 1)
		case "$unset":
			argument = ""
		case "$bit":
			argument = bson.D{{Key: rapid.SampledFrom([]string{"and", "or", "xor"}).Draw(t, "bits"), Value: argument}}
		case "$currentDate":
			argument = true
		case "$rename":
			argument = drawPath(t)
		case "$push each":
			one.Key = "$push"
			each := bson.D{{Key: "$each", Value: bson.A{argument, int32(0)}}}
			argument = append(each, rapid.SampledFrom([]bson.D{
				{}, {{Key: "$slice", Value: -2}}, {{Key: "$sort", Value: 1}}, {{Key: "$position", Value: 0}, {Key: "$slice", Value: 3}},
			}).Draw(t, "modifiers")...)
		case "$pull":
			argument = rapid.SampledFrom([]any{int32(1), bson.D{{Key: "$gte", Value: 1}}, bson.D{{Key: "a", Value: 1}}}).Draw(t, "condition")
		case "$pullAll":
			argument = bson.A{int32(0), int32(2)}
		case "$pop":
			argument = rapid.SampledFrom([]any{1, -1}).Draw(t, "end")
		case "$[e]":
			one.Key, path = "$set", drawName(t, false)+".$[e]"
			opts = options.UpdateOne().SetArrayFilters(bson.A{bson.D{{Key: "e", Value: bson.D{{Key: "$gte", Value: 1}}}}})
		}
		one.Value = bson.D{{Key: path, Value: argument}}
		if !slices.ContainsFunc(update, func(e bson.E) bool { return e.Key == one.Key }) {
			update = append(update, one)
		}
	}
	_, err := p.coll(drawColl(t)).UpdateOne(context.Background(), byID(drawID(t)), update, opts)
	p.done(t, err)
}

// compute updates by a pipeline. A name with a dot can only be set so.
func (p *livePlay) compute(t *rapid.T) {
	literal := bson.D{{Key: "$literal", Value: drawValue(t, 1)}}
	stage := rapid.SampledFrom([]bson.D{
		{{Key: "$set", Value: bson.D{{Key: strings.ReplaceAll(drawPath(t), "$[]", "c"), Value: literal}}}},
		{{Key: "$unset", Value: strings.ReplaceAll(drawPath(t), "$[]", "c")}},
		{{Key: "$replaceWith", Value: bson.D{{Key: "$literal", Value: drawFields(t, 1)}}}},
		{{Key: "$set", Value: bson.D{{Key: "b", Value: bson.D{{Key: "$slice", Value: bson.A{"$b", 1}}}}}}},
		{{Key: "$replaceWith", Value: bson.D{{Key: "$setField", Value: bson.D{{Key: "field", Value: drawName(t, true)}, {Key: "input", Value: "$$ROOT"}, {Key: "value", Value: literal}}}}}},
		{{Key: "$replaceWith", Value: bson.D{{Key: "$unsetField", Value: bson.D{{Key: "field", Value: drawName(t, true)}, {Key: "input", Value: "$$ROOT"}}}}}},
		{{Key: "$set", Value: bson.D{{Key: "a", Value: bson.D{{Key: "$setField", Value: bson.D{{Key: "field", Value: drawName(t, true)}, {Key: "input", Value: "$a"}, {Key: "value", Value: literal}}}}}}}},
	}).Draw(t, "stage")
	_, err := p.coll(drawColl(t)).UpdateOne(context.Background(), byID(drawID(t)), bson.A{stage})
	p.done(t, err)
}

// collections drops a collection, or renames one over another or away.
func (p *livePlay) collections(t *rapid.T) {
	rename := func(from, to string) error {
		return p.liveStage.client.Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "renameCollection", Value: "shop." + from}, {Key: "to", Value: "shop." + to}, {Key: "dropTarget", Value: true},
		}).Err()
	}
	switch rapid.IntRange(0, 15).Draw(t, "what") {
	case 0:
		p.done(t, p.coll(drawColl(t)).Drop(context.Background()))
	case 1:
		p.done(t, rename("a", "b"))
	case 2:
		p.done(t, rename(drawColl(t), "c"))
	case 3:
		p.done(t, rename("c", drawColl(t)))
	}
}

// pause waits until every query is whole and has what find returns.
func (p *livePlay) pause(t *rapid.T) {
	p.steps.Add(1)
	documents := make(map[string][]any)
	for _, coll := range []string{"a", "b", "c"} {
		cursor, err := p.coll(coll).Find(context.Background(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var all []bson.Raw
		if err := cursor.All(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		for _, raw := range all {
			data, err := bson.MarshalExtJSON(raw, false, false)
			if err != nil {
				t.Fatal(err)
			}
			decoder := json.NewDecoder(strings.NewReader(string(data)))
			decoder.UseNumber()
			var doc map[string]any
			if err := decoder.Decode(&doc); err != nil {
				t.Fatal(err)
			}
			documents[coll] = append(documents[coll], plainJSON(doc))
		}
	}
	for name, q := range p.queries {
		coll, filter, _ := strings.Cut(name, "|")
		var want []any
		for _, of := range slices.Sorted(maps.Keys(documents)) {
			for _, d := range documents[of] {
				if fields, _ := d.(map[string]any); (coll == "" || coll == of) && (filter == "" || fields["a"] == "1") {
					want = append(want, d)
				}
			}
		}
		p.equals(t, name, q, want)
	}
}

func (p *livePlay) equals(t *rapid.T, name string, q *watched, want []any) {
	texts := func(all []any) (texts []string) {
		for _, d := range all {
			data, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(data))
		}
		slices.Sort(texts)
		return texts
	}
	expected := texts(want)
	var got []string
	var whole bool
	timeout := time.NewTimer(patience / 2)
	defer timeout.Stop()
	for waits := true; waits; {
		docs, is := q.Documents()
		all := make([]any, 0, len(docs))
		for _, d := range docs {
			all = append(all, plainJSON(d))
		}
		if got, whole = texts(all), is; whole && reflect.DeepEqual(got, expected) {
			return
		}
		select {
		case <-q.changed:
		case <-p.node.ended:
			if !endsSo(p.node.err) {
				t.Fatalf("the node has ended: %v", p.node.err)
			}
			p.Logf("the node has ended: %v", p.node.err)
			p.node = p.beginWith(nil)
		case <-timeout.C:
			waits = false
		}
	}
	if why := p.apart.Load(); why != nil {
		t.Errorf("the client is not connected: %s", *why)
	}
	t.Fatalf("%s\nquery %s, whole %t, has\n%s\nMongoDB has\n%s", p.node.tell(), name, whole, strings.Join(got, "\n"), strings.Join(expected, "\n"))
}

// plainJSON gives equal values one form, however numbers and dates were written.
func plainJSON(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return f
		}
		return v.String()
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plainJSON(v[i])
		}
		return list
	case map[string]any:
		if text, ok := v["$date"].(string); ok {
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				return at.UnixMilli()
			}
		}
		fields := make(map[string]any, len(v))
		for name, field := range v {
			fields[name] = plainJSON(field)
		}
		return fields
	}
	return v
}
