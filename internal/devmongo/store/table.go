package store

import (
	"slices"
	"sort"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// table is a collection's documents.
type table struct {
	docs       map[string]*record // by the KeyString of _id
	head, last *record            // in insertion order
	bytes      int64
	sorted     []*record // by key; nil when documents came or went since
}

// record is a document's place in its table.
type record struct {
	key     string
	doc     bsoncore.Document
	changed uint64 // cluster time of the last change
	gone    bool

	prev, next *record
}

func newTable() *table { return &table{docs: map[string]*record{}} }

// insert adds a document whose key is free.
func (t *table) insert(key string, d bsoncore.Document, ts uint64) *record {
	r := &record{key: key, doc: d, changed: ts, prev: t.last}
	if t.last != nil {
		t.last.next = r
	} else {
		t.head = r
	}
	t.last = r
	t.docs[key] = r
	t.bytes += int64(len(d))
	t.sorted = nil
	return r
}

// replace gives a record another document of the same _id.
func (t *table) replace(r *record, d bsoncore.Document, ts uint64) {
	t.bytes += int64(len(d) - len(r.doc))
	r.doc, r.changed = d, ts
}

// remove takes a record out.
func (t *table) remove(r *record) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		t.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		t.last = r.prev
	}
	delete(t.docs, r.key)
	r.gone = true
	t.bytes -= int64(len(r.doc))
	t.sorted = nil
}

// all are the documents in insertion order.
func (t *table) all() []bsoncore.Document {
	out := make([]bsoncore.Document, 0, len(t.docs))
	for r := t.head; r != nil; r = r.next {
		out = append(out, r.doc)
	}
	return out
}

// sort remembers the order by _id until documents come or go.
func (t *table) sort() { t.sorted = t.byKey() }

// byKey is the order that Sort remembers, or else the order computed anew.
func (t *table) byKey() []*record {
	if t.sorted != nil {
		return t.sorted
	}
	out := make([]*record, 0, len(t.docs))
	for r := t.head; r != nil; r = r.next {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record) int { return strings.Compare(a.key, b.key) })
	return out
}

// ordered returns the matching documents by _id, up to limit of them; 0 is no limit.
func (t *table) ordered(f *query.Filter, ascending bool, limit int64) []bsoncore.Document {
	rows := t.byKey()
	if low, ok := f.Floor("_id"); ok {
		if key, err := doc.SortKey(low); err == nil {
			rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key >= key }):]
		}
	}
	var out []bsoncore.Document
	for i := range rows {
		r := rows[i]
		if !ascending {
			r = rows[len(rows)-1-i]
		}
		if f.Match(r.doc) {
			out = append(out, r.doc)
		}
		if limit > 0 && int64(len(out)) >= limit {
			break
		}
	}
	return out
}

// overlay is what a transaction changed in a table: nil for a document that it deleted. The zero Overlay is nothing.
type overlay struct {
	docs    map[string]bsoncore.Document
	written []string // keys in the order in which they were first written
}

// Write changes the overlay; d is nil for a deletion.
func (o *overlay) Write(key string, d bsoncore.Document) {
	if o.docs == nil {
		o.docs = map[string]bsoncore.Document{}
	}
	if _, known := o.docs[key]; !known {
		o.written = append(o.written, key)
	}
	o.docs[key] = d
}

// apply makes the table what the overlay makes of it.
func (t *table) apply(o overlay, ts uint64) {
	for _, key := range o.written {
		r, d := t.docs[key], o.docs[key]
		switch {
		case r == nil && d == nil:
		case r == nil:
			t.insert(key, d, ts)
		case d == nil:
			t.remove(r)
		default:
			t.replace(r, d, ts)
		}
	}
}

// foundRow is a document that a scan came upon.
type foundRow struct {
	key string
	doc bsoncore.Document
}

// matching collects up to limit documents that match, as seen through the overlay; 0 is no limit. It looks up those
// whose _id the filter names, or else walks all in insertion order.
func (t *table) matching(f *query.Filter, over overlay, limit int) ([]foundRow, error) {
	var out []foundRow
	err := t.scan(f, over, func(x foundRow) bool {
		if f.Match(x.doc) {
			out = append(out, x)
		}
		return limit == 0 || len(out) < limit
	})
	return out, err
}

func (t *table) scan(f *query.Filter, over overlay, visit func(foundRow) bool) error {
	if ids, ok := f.IDs(); ok {
		return t.scanIDs(ids, over, visit)
	}
	for r := t.head; r != nil; r = r.next {
		d := r.doc
		if changed, ok := over.docs[r.key]; ok {
			d = changed
		}
		if d != nil && !visit(foundRow{r.key, d}) {
			return nil
		}
	}
	for _, key := range over.written {
		if d := over.docs[key]; d != nil && t.docs[key] == nil && !visit(foundRow{key, d}) {
			return nil
		}
	}
	return nil
}

func (t *table) scanIDs(ids []bsoncore.Value, over overlay, visit func(foundRow) bool) error {
	for _, id := range ids {
		key, err := doc.SortKey(id)
		if err != nil {
			return err
		}
		if d, ok := t.see(key, over); ok && !visit(foundRow{key, d}) {
			return nil
		}
	}
	return nil
}

// see is the document of a key as seen through the overlay.
func (t *table) see(key string, over overlay) (bsoncore.Document, bool) {
	if d, ok := over.docs[key]; ok {
		return d, d != nil
	}
	if r := t.docs[key]; r != nil {
		return r.doc, true
	}
	return nil, false
}
