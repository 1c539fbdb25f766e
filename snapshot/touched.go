package snapshot

import (
	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// maxTouched bounds the tracked documents, about 3 MiB.
const maxTouched = 1 << 16

// Touched tracks the documents of a collection that changes have touched since a time. It must not
// be used concurrently.
type Touched struct {
	db, coll string
	last     map[xxh3.Uint128]Touch
	id       []byte
	spoiled  bool
}

// A Touch is what is known of the last change of a document.
type Touch struct {
	Op    change.Op
	Whole bool // it carries all of the document, or the document is gone
}

// NewTouched returns a Touched for a collection.
func NewTouched(ns change.Namespace) *Touched {
	return &Touched{db: ns.DB, coll: ns.Coll, last: make(map[xxh3.Uint128]Touch)}
}

// Note records an event of any collection.
func (t *Touched) Note(e *change.Event) {
	switch {
	case e.Key() == nil:
		t.concern(e)
	case string(e.DB()) != t.db || string(e.Coll()) != t.coll:
	case len(t.last) >= maxTouched:
		t.spoiled = true
	default:
		t.last[t.hash(e.ID())] = Touch{e.Op(), e.Op() == change.OpDelete || e.Lookup("fullDocument").Document() != nil}
	}
}

// concern records an event without a document: of the whole collection, or one of which nothing is
// known.
func (t *Touched) concern(e *change.Event) {
	is := func(db, coll []byte) bool {
		return (len(db) == 0 || string(db) == t.db) && (len(coll) == 0 || string(coll) == t.coll)
	}
	switch e.Op() {
	case change.OpDrop, change.OpDropDatabase, change.OpInvalidate:
		t.spoiled = t.spoiled || is(e.DB(), e.Coll())
	case change.OpRename:
		t.spoiled = t.spoiled || is(e.DB(), e.Coll()) || is(e.ToDB(), e.ToColl())
	case change.OpOther, change.OpInsert, change.OpUpdate, change.OpReplace, change.OpDelete, change.OpSnapshot:
	case change.OpSkipped:
		t.spoiled = true
	}
}

// Spoil records that changes may be missing.
func (t *Touched) Spoil() { t.spoiled = true }

// Spoiled reports whether a page that was read meanwhile is unusable.
func (t *Touched) Spoiled() bool { return t.spoiled }

// Has returns the last change of a document, and whether there was one.
func (t *Touched) Has(id change.Value) (last Touch, touched bool) {
	if len(t.last) == 0 {
		return last, false
	}
	last, touched = t.last[t.hash(id)]
	return last, touched
}

// hash identifies a document.
func (t *Touched) hash(id change.Value) xxh3.Uint128 {
	t.id = change.AppendCanonical(t.id[:0], id)
	return xxh3.Hash128(t.id)
}
