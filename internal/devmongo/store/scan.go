package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

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
