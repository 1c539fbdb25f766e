package table

import (
	"slices"
	"sort"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/keystring"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// Table is a collection's documents.
type Table struct {
	docs       map[string]*Record // by the KeyString of _id
	head, last *Record            // in insertion order
	bytes      int64
	sorted     []*Record // by key; nil when documents came or went since
}

// Record is a document's place in its table.
type Record struct {
	Key     string
	Doc     bsoncore.Document
	Changed uint64 // cluster time of the last change
	gone    bool

	prev, next *Record
}

// Gone reports whether the document was removed.
func (r *Record) Gone() bool { return r.gone }

// New makes an empty table.
func New() *Table { return &Table{docs: map[string]*Record{}} }

// Get is the record of a key, nil when there is none.
func (t *Table) Get(key string) *Record { return t.docs[key] }

// Len is the number of documents.
func (t *Table) Len() int { return len(t.docs) }

// Bytes is their size.
func (t *Table) Bytes() int64 { return t.bytes }

// Insert adds a document whose key is free.
func (t *Table) Insert(key string, d bsoncore.Document, ts uint64) *Record {
	r := &Record{Key: key, Doc: d, Changed: ts, prev: t.last}
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

// Replace gives a record another document of the same _id.
func (t *Table) Replace(r *Record, d bsoncore.Document, ts uint64) {
	t.bytes += int64(len(d) - len(r.Doc))
	r.Doc, r.Changed = d, ts
}

// Remove takes a record out.
func (t *Table) Remove(r *Record) {
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
	delete(t.docs, r.Key)
	r.gone = true
	t.bytes -= int64(len(r.Doc))
	t.sorted = nil
}

// Docs are all documents in insertion order.
func (t *Table) Docs() []bsoncore.Document {
	out := make([]bsoncore.Document, 0, len(t.docs))
	for r := t.head; r != nil; r = r.next {
		out = append(out, r.Doc)
	}
	return out
}

// Sort remembers the order by _id until documents come or go.
func (t *Table) Sort() { t.sorted = t.byKey() }

// byKey is the order that Sort remembers, or else the order computed anew.
func (t *Table) byKey() []*Record {
	if t.sorted != nil {
		return t.sorted
	}
	out := make([]*Record, 0, len(t.docs))
	for r := t.head; r != nil; r = r.next {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Record) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Ordered returns the matching documents by _id, up to limit of them; 0 is no limit.
func (t *Table) Ordered(f *query.Filter, ascending bool, limit int64) []bsoncore.Document {
	rows := t.byKey()
	if low, ok := f.Floor("_id"); ok {
		if key, err := keystring.Key(low); err == nil {
			rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].Key >= key }):]
		}
	}
	var out []bsoncore.Document
	for i := range rows {
		r := rows[i]
		if !ascending {
			r = rows[len(rows)-1-i]
		}
		if f.Match(r.Doc) {
			out = append(out, r.Doc)
		}
		if limit > 0 && int64(len(out)) >= limit {
			break
		}
	}
	return out
}
