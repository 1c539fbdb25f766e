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
	stretch

	documents map[xxh3.Uint128]struct{}
}

// NewTouched returns a Touched for a collection.
func NewTouched(ns change.Namespace) *Touched {
	return &Touched{stretch: stretch{db: ns.DB, coll: ns.Coll}, documents: make(map[xxh3.Uint128]struct{})}
}

// Note records an event of any collection.
func (t *Touched) Note(e *change.Event) {
	switch {
	case !t.concerns(e):
	case len(t.documents) >= maxTouched:
		t.Spoil()
	default:
		t.documents[t.hash(e.ID())] = struct{}{}
	}
}

// Has reports whether a document was touched.
func (t *Touched) Has(id change.Value) (touched bool) {
	if len(t.documents) > 0 {
		_, touched = t.documents[t.hash(id)]
	}
	return touched
}

// A stretch is the changes of a collection since a time, as far as it is known that none is
// missing.
type stretch struct {
	db, coll string
	id       []byte
	spoiled  bool
}

// concerns reports whether an event is a change of a document of the collection. An event of the
// whole collection, or an unknown one, spoils the span.
func (s *stretch) concerns(e *change.Event) bool {
	if e.Key() != nil {
		return string(e.DB()) == s.db && string(e.Coll()) == s.coll
	}
	is := func(db, coll []byte) bool {
		return (len(db) == 0 || string(db) == s.db) && (len(coll) == 0 || string(coll) == s.coll)
	}
	switch e.Op() {
	case change.OpDrop, change.OpDropDatabase, change.OpInvalidate:
		s.spoiled = s.spoiled || is(e.DB(), e.Coll())
	case change.OpRename:
		s.spoiled = s.spoiled || is(e.DB(), e.Coll()) || is(e.ToDB(), e.ToColl())
	case change.OpOther, change.OpInsert, change.OpUpdate, change.OpReplace, change.OpDelete, change.OpSnapshot:
	case change.OpSkipped:
		s.spoiled = true
	}
	return false
}

// Spoil records that changes may be missing.
func (s *stretch) Spoil() { s.spoiled = true }

// Spoiled reports whether the documents that were read meanwhile are unusable.
func (s *stretch) Spoiled() bool { return s.spoiled }

// hash identifies a document.
func (s *stretch) hash(id change.Value) xxh3.Uint128 {
	s.id = change.AppendCanonical(s.id[:0], id)
	return xxh3.Hash128(s.id)
}
