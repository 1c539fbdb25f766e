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
