package table

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/keystring"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// Overlay is what a transaction changed in a table: nil for a document that it deleted. The zero Overlay is nothing.
type Overlay struct {
	Docs    map[string]bsoncore.Document
	Written []string // keys in the order in which they were first written
}

// Write changes the overlay; d is nil for a deletion.
func (o *Overlay) Write(key string, d bsoncore.Document) {
	if o.Docs == nil {
		o.Docs = map[string]bsoncore.Document{}
	}
	if _, known := o.Docs[key]; !known {
		o.Written = append(o.Written, key)
	}
	o.Docs[key] = d
}

// Apply makes the table what the overlay makes of it.
func (t *Table) Apply(o Overlay, ts uint64) {
	for _, key := range o.Written {
		r, d := t.docs[key], o.Docs[key]
		switch {
		case r == nil && d == nil:
		case r == nil:
			t.Insert(key, d, ts)
		case d == nil:
			t.Remove(r)
		default:
			t.Replace(r, d, ts)
		}
	}
}

// Found is a document that a scan came upon.
type Found struct {
	Key string
	Doc bsoncore.Document
}

// Matching collects up to limit documents that match, as seen through the overlay; 0 is no limit. It looks up those
// whose _id the filter names, or else walks all in insertion order.
func (t *Table) Matching(f *query.Filter, over Overlay, limit int) ([]Found, error) {
	var out []Found
	err := t.scan(f, over, func(x Found) bool {
		if f.Match(x.Doc) {
			out = append(out, x)
		}
		return limit == 0 || len(out) < limit
	})
	return out, err
}

func (t *Table) scan(f *query.Filter, over Overlay, visit func(Found) bool) error {
	if ids, ok := f.IDs(); ok {
		return t.scanIDs(ids, over, visit)
	}
	for r := t.head; r != nil; r = r.next {
		d := r.Doc
		if changed, ok := over.Docs[r.Key]; ok {
			d = changed
		}
		if d != nil && !visit(Found{r.Key, d}) {
			return nil
		}
	}
	for _, key := range over.Written {
		if d := over.Docs[key]; d != nil && t.docs[key] == nil && !visit(Found{key, d}) {
			return nil
		}
	}
	return nil
}

func (t *Table) scanIDs(ids []bsoncore.Value, over Overlay, visit func(Found) bool) error {
	for _, id := range ids {
		key, err := keystring.Key(id)
		if err != nil {
			return err
		}
		if d, ok := t.See(key, over); ok && !visit(Found{key, d}) {
			return nil
		}
	}
	return nil
}

// See is the document of a key as seen through the overlay.
func (t *Table) See(key string, over Overlay) (bsoncore.Document, bool) {
	if d, ok := over.Docs[key]; ok {
		return d, d != nil
	}
	if r := t.docs[key]; r != nil {
		return r.Doc, true
	}
	return nil, false
}
