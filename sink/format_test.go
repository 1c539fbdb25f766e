package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
)

// encoded returns the message of a change in a format.
func encoded(t *testing.T, cfg Config, doc bson.D) *Message {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster, cfg.Name = "c", "out"
	m, err := newEncoder(cfg).message(&delivery.Event{Ref: change.At(change.Timestamp{T: 1000, I: 2}).Ref(), Partition: 3}, "1-A-0", raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A document of a snapshot is a read event for Debezium's consumers. Its id has the document,
// because documents that were read together have one position.
func TestDocumentsOfSnapshots(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, id := range []int64{7, 8} {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
		if err != nil {
			t.Fatal(err)
		}
		at := change.Timestamp{T: 1000, I: 2}
		read, err := change.Snapshotted(change.Namespace{DB: "shop", Coll: "orders"}, doc, at)
		if err != nil {
			t.Fatal(err)
		}
		event := &delivery.Event{Ref: change.At(at).Ref(), Snapshot: true}
		m, err := newEncoder(Config{Cluster: "c", Format: Debezium}).message(event, "1-A-0", read.Raw())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`{"before":null,"after":"{\"_id\":` + strconv.FormatInt(id, 10) + `}","updateDescription":null,`, `"ts_ms":1000000,"snapshot":"true","db":"shop",`, `"op":"r",`,
		} {
			if !strings.Contains(string(m.Value), want) {
				t.Errorf("%s lacks %s", m.Value, want)
			}
		}
		if !json.Valid(m.Value) || !m.Snapshot {
			t.Errorf("%+v", m)
		}
		ids = append(ids, m.ID)
	}
	if ids[0] == ids[1] {
		t.Errorf("two documents have the id %s", ids[0])
	}
}

func update() bson.D {
	return bson.D{
		{Key: "operationType", Value: "update"}, {Key: "clusterTime", Value: bson.Timestamp{T: 1000, I: 2}}, {Key: "wallTime", Value: bson.DateTime(1000123)},
		{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: int64(7)}, {Key: "n", Value: int64(9007199254740993)}}},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: int64(7)}}},
		{Key: "updateDescription", Value: bson.D{
			{Key: "updatedFields", Value: bson.D{{Key: "n", Value: int64(9007199254740993)}}}, {Key: "removedFields", Value: bson.A{"x"}},
		}},
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Format: Relaxed}, []string{`{"id":"`, `"partition":3,`, `"operationType":"update"`, `"n":9007199254740993`}},
		{Config{Format: Relaxed, LongText: true}, []string{`"_id":7,`, `"n":"9007199254740993"`}},
		{Config{Format: Canonical}, []string{`"n":{"$numberLong":"9007199254740993"}`}},
		{Config{Format: Debezium}, []string{
			`{"before":null,"after":"{\"_id\":7,\"n\":9007199254740993}",`, `"updateDescription":{"removedFields":["x"],"updatedFields":"{\"n\":9007199254740993}","truncatedArrays":null}`,
			`"connector":"mongodb","name":"c","ts_ms":1000123,"snapshot":"false","db":"shop","sequence":null,"ts_us":1000123000,"ts_ns":1000123000000,"collection":"orders","ord":2,`, `"op":"u","ts_ms":`,
		}},
		{Config{Format: CloudEvents}, []string{
			`{"specversion":"1.0","id":"`, `"source":"/streamer/c/out","type":"streamer.update","subject":"shop.orders","time":"1970-01-01T00:16:40.123Z"`, `"partitionkey":"7","data":{"id":`,
		}},
	} {
		m := encoded(t, c.cfg, update())
		if !json.Valid(m.Value) {
			t.Errorf("%s: not JSON: %s", c.cfg.Format, m.Value)
		}
		for _, part := range c.want {
			if !strings.Contains(string(m.Value), part) {
				t.Errorf("%s: without %s: %s", c.cfg.Format, part, m.Value)
			}
		}
	}
	raw, err := bson.Marshal(update())
	if err != nil {
		t.Fatal(err)
	}
	if m := encoded(t, Config{Format: BSON}, update()); string(m.Value) != string(raw) {
		t.Error("not the change")
	}
}

// Numbers that are one _id for MongoDB are one key; a change without a document has none.
func TestEqualNumbersAreOneKey(t *testing.T) {
	t.Parallel()
	for _, id := range []any{int32(7), int64(7), 7.0} {
		doc := bson.D{{Key: "operationType", Value: "delete"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}}
		if m := encoded(t, Config{Format: Relaxed}, doc); string(m.Key) != "7" {
			t.Errorf("%T: %s", id, m.Key)
		}
	}
	if m := encoded(t, Config{Format: Relaxed}, bson.D{{Key: "operationType", Value: "dropDatabase"}}); m.Key != nil {
		t.Errorf("%s", m.Key)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	legal := func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	m := &Message{DB: "shop", Coll: "a.b", Op: "insert", Partition: 3}
	for text, want := range map[string]string{"{db}.{coll}": "shop.a_b--" + hashOf("shop", "a.b"), "{coll}": "a_b--" + hashOf("a.b"), "{db}": "shop", "x": "x", "c.{partition}.{op}-{db}": "c.3.insert-shop"} {
		tmpl, err := ParseTemplate(text, Limits{Legal: legal})
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.Name(m); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	tmpl, err := ParseTemplate("c.{partition}.{op}-{db}.{coll}", Limits{Legal: legal})
	if err != nil {
		t.Fatal(err)
	}
	if got := tmpl.Filter(3); got != "c.3.*.*" {
		t.Error(got)
	}
	for _, bad := range []string{"{db", "{DB}", "{}"} {
		if _, err := ParseTemplate(bad, Limits{Legal: legal}); err == nil {
			t.Errorf("%s is a template", bad)
		}
	}
}

// Targets that send several partitions at a time make names concurrently.
func TestNamesAreMadeByManyGoroutines(t *testing.T) {
	t.Parallel()
	tmpl, err := ParseTemplate("{partition}", Limits{Legal: strings.ToLower})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for p := range change.Partition(100) {
				if got := tmpl.Name(&Message{Partition: p}); got != strconv.Itoa(int(p)) {
					t.Errorf("partition %d: %s", p, got)
				}
			}
		})
	}
	wg.Wait()
}

// hashOf returns the end of a name that does not tell collections apart.
func hashOf(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Two collections never have one name, whatever a template replaces, cuts off or has between them.
func TestTemplatesTellCollectionsApart(t *testing.T) {
	t.Parallel()
	legal := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < 128 && r != ' ' && r != '*' && r != '>' {
				return r
			}
			return '_'
		}, s)
	}
	part := rapid.StringOfN(rapid.RuneFrom([]rune("ab_-.ü őé 0")), 1, 12, -1)
	for _, text := range []string{"{db}.{coll}", "{db}-{coll}", "{coll}.{db}", "{coll}_x_{db}", "{db}{coll}", "p.{partition}.{db}.{coll}", "{db}.{coll}.{partition}"} {
		tmpl, err := ParseTemplate(text, Limits{Legal: legal, Longest: 90, Reserved: []string{"a.a", "a-b"}})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]string)
		rapid.Check(t, func(t *rapid.T) {
			m := &Message{DB: strings.ReplaceAll(part.Draw(t, "db"), ".", ""), Coll: strings.Repeat(part.Draw(t, "coll"), rapid.SampledFrom([]int{1, 9}).Draw(t, "times")), Partition: 3}
			if rapid.IntRange(0, 9).Draw(t, "whole") == 0 {
				m.Coll = ""
			}
			if m.DB == "" {
				return
			}
			name := tmpl.Name(m)
			if rapid.Bool().Draw(t, "twice") { // what looks like a name that has a hash
				if db, coll, is := strings.Cut(name, "."); is && m.Coll != "" && db != "" && len(db) < 64 {
					m = &Message{DB: db, Coll: coll, Partition: 3}
					name = tmpl.Name(m)
				}
			}
			of := m.DB + "\x00" + m.Coll
			if other, is := seen[name]; is && other != of {
				t.Fatalf("%q and %q have the name %q in %s", other, of, name, text)
			}
			seen[name] = of
			if len(name) > 90 || legal(name) != name || name == "a.a" || name == "a-b" {
				t.Fatalf("%q has the name %q in %s", of, name, text)
			}
		})
	}
	tmpl, err := ParseTemplate("{db}.{coll}", Limits{Legal: legal})
	if err != nil {
		t.Fatal(err)
	}
	for coll, want := range map[string]string{
		"orders": "shop.orders", "fs.files": "shop.fs.files", "bücher": "shop.b_cher--" + hashOf("shop", "bücher"),
		"bőcher": "shop.b_cher--" + hashOf("shop", "bőcher"), "_": "shop._--" + hashOf("shop", "_"), "": "shop._",
		"x--0123456789abcdef": "shop.x--0123456789abcdef--" + hashOf("shop", "x--0123456789abcdef"),
	} {
		if got := tmpl.Name(&Message{DB: "shop", Coll: coll}); got != want {
			t.Errorf("%q: %s, want %s", coll, got, want)
		}
	}
}

// debezium is Debezium's schema of MongoDB's events (MongoDbSchema, MongoDbSourceInfoStructMaker,
// TransactionMonitor), with what ours adds to source.
type debezium struct {
	Before *string `json:"before"`
	After  *string `json:"after"`
	Update *struct {
		Removed   []string `json:"removedFields"`
		Updated   *string  `json:"updatedFields"`
		Truncated []struct {
			Field string `json:"field"`
			Size  int    `json:"size"`
		} `json:"truncatedArrays"`
	} `json:"updateDescription"`
	Source struct {
		Version    string  `json:"version"`
		Connector  string  `json:"connector"`
		Name       string  `json:"name"`
		Millis     int64   `json:"ts_ms"`
		Micros     int64   `json:"ts_us"`
		Nanos      int64   `json:"ts_ns"`
		Snapshot   string  `json:"snapshot"`
		DB         string  `json:"db"`
		Sequence   *string `json:"sequence"`
		Collection string  `json:"collection"`
		Ord        int32   `json:"ord"`
		LSID       *string `json:"lsid"`
		Txn        *int64  `json:"txnNumber"`
		Wall       *int64  `json:"wallTime"`
		ID         string  `json:"streamer_id"`
		Key        string  `json:"streamer_key"`
	} `json:"source"`
	Op          string `json:"op"`
	Millis      int64  `json:"ts_ms"`
	Micros      int64  `json:"ts_us"`
	Nanos       int64  `json:"ts_ns"`
	Transaction any    `json:"transaction"`
}

// Every event has the fields of Debezium's schema and no others, with its types and values.
func TestDebeziumHasItsOwnSchema(t *testing.T) {
	t.Parallel()
	key := bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: bson.ObjectID{1}}}}
	const id = `{"_id":{"$oid":"010000000000000000000000"}}`
	of := func(op string, more ...bson.E) bson.D {
		return append(bson.D{
			{Key: "operationType", Value: op}, {Key: "clusterTime", Value: bson.Timestamp{T: 1000, I: 2}}, {Key: "wallTime", Value: bson.DateTime(1000123)},
			{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}}, key,
			{Key: "lsid", Value: bson.D{{Key: "n", Value: int32(1)}}}, {Key: "txnNumber", Value: int64(3)},
		}, more...)
	}
	full := bson.E{Key: "fullDocument", Value: bson.D{key.Value.(bson.D)[0], {Key: "n", Value: int32(1)}}} //nolint:forcetypeassert // it is one
	before := bson.E{Key: "fullDocumentBeforeChange", Value: bson.D{key.Value.(bson.D)[0]}}                //nolint:forcetypeassert // it is one
	document := `{"_id":{"$oid":"010000000000000000000000"},"n":1}`
	shortened := bson.E{Key: "updateDescription", Value: bson.D{
		{Key: "updatedFields", Value: bson.D{{Key: "a.b", Value: int32(1)}}}, {Key: "removedFields", Value: bson.A{"x", "y"}},
		{Key: "truncatedArrays", Value: bson.A{bson.D{{Key: "field", Value: "list"}, {Key: "newSize", Value: int32(2)}}, bson.D{{Key: "field", Value: "more"}, {Key: "newSize", Value: int32(0)}}}},
	}}
	for name, c := range map[string]struct {
		event             bson.D
		op, before, after string
		update            bool
	}{
		"insert":                 {of("insert", full), "c", "", document, false},
		"update":                 {of("update", shortened), "u", "", "", true},
		"update, with documents": {of("update", shortened, full, before), "u", id, document, true},
		"replace":                {of("replace", full), "u", "", document, false},
		"delete":                 {of("delete"), "d", id, "", false},
		"delete, with its image": {of("delete", before), "d", id, "", false},
	} {
		m := encoded(t, Config{Format: Debezium}, c.event)
		var e debezium
		decoder := json.NewDecoder(strings.NewReader(string(m.Value)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&e); err != nil {
			t.Errorf("%s: %v: %s", name, err, m.Value)
			continue
		}
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		if e.Op != c.op || text(e.Before) != c.before || text(e.After) != c.after || (e.Update != nil) != c.update {
			t.Errorf("%s: %s", name, m.Value)
		}
		if u := e.Update; u != nil && (text(u.Updated) != `{"a.b":1}` || strings.Join(u.Removed, " ") != "x y" || len(u.Truncated) != 2 || u.Truncated[0].Field != "list" || u.Truncated[0].Size != 2) {
			t.Errorf("%s: update %+v", name, u)
		}
		s := e.Source
		if s.Connector != "mongodb" || s.Version == "" || s.Name != "c" || s.Millis != 1000123 || s.Micros != 1000123000 || s.Nanos != 1000123000000 || s.Snapshot != "false" ||
			s.DB != "shop" || s.Collection != "orders" || s.Ord != 2 || text(s.LSID) != `{"n":1}` || s.Txn == nil || *s.Txn != 3 || s.Wall == nil || *s.Wall != 1000123 ||
			s.ID != m.ID || s.Key != string(m.Key) || e.Millis == 0 || e.Nanos/1_000_000 != e.Millis || e.Transaction != nil {
			t.Errorf("%s: %s", name, m.Value)
		}
		if got := string(DebeziumKey(m.Key, nil)); got != `{"id":"{\"$oid\":\"010000000000000000000000\"}"}` {
			t.Errorf("key %s", got)
		}
	}
}

// Attributes of CloudEvents are as its specification says: not empty, without control characters
// and what is no character, and source and id are unique.
func TestCloudEventsHaveLegalAttributes(t *testing.T) {
	t.Parallel()
	ids := make(map[string]bool)
	check := func(m *Message, subject, partition string) {
		t.Helper()
		var e map[string]json.RawMessage
		if err := json.Unmarshal(m.Value, &e); err != nil {
			t.Fatalf("%v: %s", err, m.Value)
		}
		attributes := make(map[string]string)
		for name, raw := range e {
			if name == "data" {
				continue
			}
			var v string
			if err := json.Unmarshal(raw, &v); err != nil || v == "" || strings.ToLower(name) != name || strings.ContainsAny(name, "-_.") {
				t.Errorf("attribute %s: %s, %v", name, raw, err)
			}
			for _, r := range v {
				if r < ' ' || r >= 0x7f && r <= 0x9f || r == '\ufffd' || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe {
					t.Errorf("attribute %s has the code point %U: %q", name, r, v)
				}
			}
			attributes[name] = v
		}
		if attributes["specversion"] != "1.0" || attributes["type"] == "" || attributes["source"] == "" || attributes["subject"] != subject || attributes["partitionkey"] != partition {
			t.Errorf("%v, want subject %q, partitionkey %q", attributes, subject, partition)
		}
		if _, err := time.Parse(time.RFC3339, attributes["time"]); err != nil {
			t.Error(err)
		}
		if ids[attributes["source"]+attributes["id"]] {
			t.Errorf("id %s comes twice", attributes["id"])
		}
		ids[attributes["source"]+attributes["id"]] = true
	}
	n := uint32(0)
	event := func(db, coll string, id any) *Message {
		n++
		doc := bson.D{{Key: "operationType", Value: "delete"}, {Key: "clusterTime", Value: bson.Timestamp{T: 1000, I: n}}, {Key: "ns", Value: bson.D{{Key: "db", Value: db}, {Key: "coll", Value: coll}}}}
		if id != nil {
			doc = append(doc, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}})
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		m, err := newEncoder(Config{Cluster: "c", Name: "out", Format: CloudEvents}).message(&delivery.Event{Ref: change.At(change.Timestamp{T: 1000, I: n}).Ref()}, "", raw)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	check(event("shop", "orders", int32(7)), "shop.orders", "7")
	check(event("shop", "", nil), "shop", "shop")
	check(event("shop", "bücher \\ %", "ü\x00\x7f\u0085\uffff\xff"), "shop.bücher \\ %", `"ü\u0000\u007f\u0085\uffff\udcff"`)
	check(event("shop", "a\tb", int32(7)), `shop.a\tb`, "7")
	check(event("shop", "a\nb\xff", int32(7)), `shop.a\nb\udcff`, "7")
	loss := newEncoder(Config{Cluster: "c", Name: "out", Format: CloudEvents}).loss(&delivery.Batch{Loss: &delivery.Loss{Kind: "resync"}, To: change.At(change.Timestamp{T: 1000, I: 9})})
	check(loss, "", "")
}

// An encoder keeps no more memory than usual changes need, whatever the last one was.
func TestEncoderKeepsNoLargeBlock(t *testing.T) {
	t.Parallel()
	e := newEncoder(Config{Cluster: "c", Name: "out", Format: Relaxed})
	for _, size := range []int{10, 1 << 20, 10} {
		doc := changetest.Event{ID: 1, Pad: size}.Bytes()
		m, err := e.message(&delivery.Event{}, "1", doc)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Value) < size || cap(e.page.text) > pageBytes {
			t.Errorf("a change of %d bytes: the message has %d, the encoder keeps %d", size, len(m.Value), cap(e.page.text))
		}
	}
}

// A key is its message's, also if the value is longer than was expected and did not fit in the
// page.
func TestKeysStayWhereValuesOutgrowThePage(t *testing.T) {
	t.Parallel()
	e := newEncoder(Config{Cluster: "c", Name: "out", Format: Relaxed})
	var all []*Message
	for n := range 200 {
		fields := bson.D{{Key: "operationType", Value: "insert"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: strconv.Itoa(n)}}}}
		if n%2 == 0 { // it is six times as long as JSON
			fields = append(fields, bson.E{Key: "fullDocument", Value: bson.D{{Key: "control", Value: strings.Repeat("\x01", 1000+17*n)}}})
		}
		doc, err := bson.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.message(&delivery.Event{}, "1", doc)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	for n, m := range all {
		if want := strconv.Quote(strconv.Itoa(n)); string(m.Key) != want {
			t.Errorf("the key of message %s is %s", want, m.Key)
		}
	}
}
