package snapshot

import (
	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// maxTouched bounds the documents that are noted while a page is read: some 3 MiB.
const maxTouched = 1 << 16

// Touched are the documents of a collection that changes have touched since a time. It is for one goroutine.
type Touched struct {
	db, coll string
	whole    map[xxh3.Uint128]bool // whether the last change of a document carried the whole of it
	id       []byte

	spoiled, gone, replaced bool
}

// NewTouched makes a Touched of a collection.
func NewTouched(ns change.Namespace) *Touched {
	return &Touched{db: ns.DB, coll: ns.Coll, whole: make(map[xxh3.Uint128]bool)}
}

// Note notes an event of any collection.
func (t *Touched) Note(e *change.Event) {
	switch {
	case e.Key() == nil:
		t.concern(e)
	case string(e.DB()) != t.db || string(e.Coll()) != t.coll:
	case len(t.whole) >= maxTouched:
		t.spoiled = true
	default:
		t.whole[t.hash(e.ID())] = e.Op() == change.OpDelete || e.Lookup("fullDocument").Document() != nil
	}
}

// concern notes an event of no document.
func (t *Touched) concern(e *change.Event) {
	is := func(db, coll []byte) bool {
		return (len(db) == 0 || string(db) == t.db) && (len(coll) == 0 || string(coll) == t.coll)
	}
	switch e.Op() {
	case change.OpDrop, change.OpDropDatabase, change.OpInvalidate:
		t.gone = t.gone || is(e.DB(), e.Coll())
	case change.OpRename:
		t.gone = t.gone || is(e.DB(), e.Coll())
		t.replaced = t.replaced || is(e.ToDB(), e.ToColl())
	case change.OpOther, change.OpInsert, change.OpUpdate, change.OpReplace, change.OpDelete, change.OpSnapshot:
	case change.OpSkipped:
		t.spoiled = true
	}
}

// Spoil says that changes may be missing.
func (t *Touched) Spoil() { t.spoiled = true }

// Spoiled reports whether a page that was read meanwhile is of no use.
func (t *Touched) Spoiled() bool { return t.spoiled || t.gone || t.replaced }

// Gone reports whether the collection has been dropped or renamed: there is nothing left to read.
func (t *Touched) Gone() bool { return t.gone }

// Replaced reports whether another collection has been renamed to this one: all of it is to be read again.
func (t *Touched) Replaced() bool { return t.replaced }

// Forget begins again, at a later time. What became of the whole collection stays.
func (t *Touched) Forget() {
	clear(t.whole)
	t.spoiled = false
}

// Has reports whether a document has been touched, and whether its last change carried the whole of it.
func (t *Touched) Has(id change.Value) (touched, whole bool) {
	if len(t.whole) == 0 {
		return false, false
	}
	whole, touched = t.whole[t.hash(id)]
	return touched, whole
}

// hash names a document.
func (t *Touched) hash(id change.Value) xxh3.Uint128 {
	t.id = change.AppendCanonical(t.id[:0], id)
	return xxh3.Hash128(t.id)
}
