package snapshot

import (
	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// maxTouched bounds the tracked documents, about 3 MiB.
const maxTouched = 1 << 16

// Touched tracks the documents of a collection that changes have touched since a time. It must not be used concurrently.
type Touched struct {
	db, coll string
	whole    map[xxh3.Uint128]bool // whether the last change of a document carried all of it
	id       []byte

	spoiled, gone, replaced bool
}

// NewTouched returns a Touched for a collection.
func NewTouched(ns change.Namespace) *Touched {
	return &Touched{db: ns.DB, coll: ns.Coll, whole: make(map[xxh3.Uint128]bool)}
}

// Note records an event of any collection.
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

// concern records an event without a document.
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

// Spoil records that changes may be missing.
func (t *Touched) Spoil() { t.spoiled = true }

// Spoiled reports whether pages read meanwhile are unusable.
func (t *Touched) Spoiled() bool { return t.spoiled || t.gone || t.replaced }

// Gone reports whether the collection was dropped or renamed, so that nothing is left to read.
func (t *Touched) Gone() bool { return t.gone }

// Replaced reports whether another collection was renamed to this one, so that all of it must be read again.
func (t *Touched) Replaced() bool { return t.replaced }

// Forget restarts tracking at a later time. It keeps what happened to the whole collection.
func (t *Touched) Forget() {
	clear(t.whole)
	t.spoiled = false
}

// Has reports whether a document was touched, and whether its last change carried all of it.
func (t *Touched) Has(id change.Value) (touched, whole bool) {
	if len(t.whole) == 0 {
		return false, false
	}
	whole, touched = t.whole[t.hash(id)]
	return touched, whole
}

// hash identifies a document.
func (t *Touched) hash(id change.Value) xxh3.Uint128 {
	t.id = change.AppendCanonical(t.id[:0], id)
	return xxh3.Hash128(t.id)
}
