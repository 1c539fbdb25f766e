package store

import (
	"slices"
	"sort"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// table is a collection's documents.
type table struct {
	docs       map[string]*record // by the KeyString of _id
	head, last *record            // in insertion order
	bytes      int64
	sorted     []*record // by key, without later additions and with removed ones; nil if not requested yet
	added      []*record // since sorted
	removed    bool      // records of sorted have gone
	foldCase   bool      // the collation ignores case
}

// record is a document's place in its table.
type record struct {
	key     string
	doc     bsoncore.Document
	changed uint64 // cluster time of the last change
	gone    bool

	prev, next *record
}

func newTable(foldCase bool) *table { return &table{docs: map[string]*record{}, foldCase: foldCase} }

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
	if t.sorted != nil {
		t.added = append(t.added, r)
	}
	return r
}

// replace gives a record another document of the same _id.
func (t *table) replace(r *record, d bsoncore.Document, ts uint64) {
	t.bytes += int64(len(d) - len(r.doc))
	r.doc = d
	r.changed = ts
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
	t.removed = true
}

// all are the documents in insertion order.
func (t *table) all() []bsoncore.Document {
	out := make([]bsoncore.Document, 0, len(t.docs))
	for r := t.head; r != nil; r = r.next {
		out = append(out, r.doc)
	}
	return out
}

// sort remembers the order by _id.
func (t *table) sort() { t.sorted, t.added, t.removed = t.byKey(), nil, false }

// byKey is the cached sort order, updated with later inserts and deletes.
func (t *table) byKey() []*record {
	byKey := func(a, b *record) int { return strings.Compare(a.key, b.key) }
	if t.sorted == nil {
		out := make([]*record, 0, len(t.docs))
		for r := t.head; r != nil; r = r.next {
			out = append(out, r)
		}
		slices.SortFunc(out, byKey)
		return out
	}
	if len(t.added) == 0 && !t.removed {
		return t.sorted
	}
	added := slices.Clone(t.added)
	slices.SortFunc(added, byKey)
	out := make([]*record, 0, len(t.docs))
	for _, r := range t.sorted {
		for len(added) > 0 && added[0].key <= r.key {
			if !added[0].gone {
				out = append(out, added[0])
			}
			added = added[1:]
		}
		if !r.gone {
			out = append(out, r)
		}
	}
	for _, r := range added {
		if !r.gone {
			out = append(out, r)
		}
	}
	return out
}

// ordered returns the matching documents by _id, as seen through the overlay, up to limit of them
// (0 is no limit), and how many it has looked at.
func (t *table) ordered(q Query, over overlay, ascending bool, limit int64) (out []bsoncore.Document, examined int, err error) {
	from, until, err := t.bounds(q)
	if err != nil {
		return nil, 0, err
	}
	rows := t.byKey()
	rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key >= from }):]
	if until != "" {
		rows = rows[:sort.Search(len(rows), func(i int) bool { return rows[i].key >= until })]
	}
	var changed []string // keys of documents that only the overlay has
	for _, key := range over.written {
		isWithin := from <= key && (until == "" || key < until)
		if isWithin && t.docs[key] == nil {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	if !ascending {
		slices.Reverse(changed)
	}
	take := func(key string, d bsoncore.Document) (more bool) {
		if o, ok := over.docs[key]; ok {
			d = o
		}
		if d == nil {
			return true
		}
		if examined++; q.Filter.Match(d) {
			out = append(out, d)
		}
		return limit == 0 || int64(len(out)) < limit
	}
	for i := range rows {
		r := rows[i]
		if !ascending {
			r = rows[len(rows)-1-i]
		}
		for len(changed) > 0 && (changed[0] < r.key) == ascending {
			if !take(changed[0], nil) {
				return out, examined, nil
			}
			changed = changed[1:]
		}
		if !take(r.key, r.doc) {
			return out, examined, nil
		}
	}
	for _, key := range changed {
		if !take(key, nil) {
			break
		}
	}
	return out, examined, nil
}

// bounds are the keys between which the documents of a query are: from is included, until is not.
// An empty until is no bound.
func (t *table) bounds(q Query) (from, until string, err error) {
	if from, err = t.bound(q.From); err != nil {
		return "", "", err
	}
	if until, err = t.bound(q.Until); err != nil {
		return "", "", err
	}
	if low, ok := q.Filter.Floor("_id"); ok {
		if key, err := t.key(low); err == nil {
			from = max(from, key)
		}
	}
	return from, until, nil
}

// bound is the key of a bound of _id, empty for none.
func (t *table) bound(v bsoncore.Value) (string, error) {
	if v.Type == 0 {
		return "", nil
	}
	return t.key(v)
}

// overlay has a transaction's changes to a table: nil for a deleted document. The zero overlay is
// empty.
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

// apply applies the overlay to the table.
func (t *table) apply(o overlay, ts uint64) {
	for _, key := range o.written {
		r := t.docs[key]
		d := o.docs[key]
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

// matching collects up to limit documents that match, as seen through the overlay; 0 is no limit.
// It looks up those whose _id the filter names, or else walks all in insertion order. examined is
// how many documents it has looked at.
func (t *table) matching(f *query.Filter, over overlay, limit int) (out []foundRow, examined int, err error) {
	unknown := false
	if t.foldCase && f != nil {
		_, named := f.IDs()
		unknown = !named
	}
	err = t.scan(f, over, func(x foundRow) bool {
		if examined++; f.Match(x.doc) {
			out = append(out, x)
		} else {
			unknown = unknown || t.foldCase
		}
		return limit == 0 || len(out) < limit
	})
	if unknown {
		return nil, examined, wire.Errorf(wire.CommandNotSupported, "devmongo compares nothing but an _id as it is stored under a collation")
	}
	return out, examined, err
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
		key, err := t.key(id)
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
