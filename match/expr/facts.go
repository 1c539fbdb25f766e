package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/change"
)

// A Root is a variable of filters. doc._id is one of its own, because it is known where the rest of doc is not; ns is no value, its names
// are.
type Root uint8

// The variables.
const (
	Doc Root = iota
	DocID
	Before
	Key
	Update
	Op
	DB
	Coll
	Roots = int(Coll) + 1
)

//nolint:gochecknoglobals // a constant table
var rootNames = [Roots]string{"doc", "doc._id", "before", "key", "update", "op", "ns.db", "ns.coll"}

// unknowns are what variables yield that an event does not tell: everything that depends on one is unknown itself.
//
//nolint:gochecknoglobals // constants
var unknowns = func() (u [Roots]ref.Val) {
	for i, name := range rootNames {
		u[i] = types.NewUnknown(int64(i+1), types.NewAttributeTrail(name))
	}
	return u
}()

func rootOf(name string) (Root, bool) {
	for i, n := range rootNames {
		if n == name {
			return Root(i), true
		}
	}
	return 0, false
}

// Facts are what one event tells. They read the event once, when first asked, and serve all filters that look at it.
type Facts struct {
	event    *change.Event
	db, coll []byte
	// imageAsDoc: the filter reads the image before a delete as doc.
	imageAsDoc bool

	read                  bool
	document, prior, diff change.Value
	meter                 costMeter
}

var _ interpreter.Activation = (*Facts)(nil)

// Of begins with an event.
func (f *Facts) Of(e *change.Event) { *f = Facts{event: e, db: e.DB(), coll: e.Coll()} }

// Event returns the event.
func (f *Facts) Event() *change.Event { return f.event }

// Namespace makes ns another namespace than the event's own: the one that a rename makes.
func (f *Facts) Namespace(db, coll []byte) { f.db, f.coll = db, coll }

// ImageAsDoc says whether doc is the image before a delete.
func (f *Facts) ImageAsDoc(yes bool) { f.imageAsDoc = yes }

// load finds the fields that filters look at; of fields that stand twice the first counts.
func (f *Facts) load() {
	if f.read {
		return
	}
	f.read = true
	raw := f.event.Raw()
	for at := 4; ; {
		name, v, next, err := change.Element(raw, at)
		if err != nil || name == nil {
			return
		}
		switch string(name) {
		case "fullDocument":
			first(&f.document, v)
		case "fullDocumentBeforeChange":
			first(&f.prior, v)
		case "updateDescription":
			first(&f.diff, v)
		}
		at = next
	}
}

func first(kept *change.Value, v change.Value) {
	if kept.IsZero() {
		*kept = v
	}
}

// Value returns what a variable is. Where the event does not tell, known is false; what is known not to be there is absent. The names
// (op, ns) are not BSON: see name.
func (f *Facts) Value(r Root) (v change.Value, known bool, err error) {
	op := f.event.Op()
	switch r {
	case Doc:
		f.load()
		v := f.document
		if f.imageAsDoc && op == change.OpDelete {
			v = f.prior
		}
		return v, v.Document() != nil, nil
	case DocID:
		return f.documentID()
	case Before:
		f.load()
		return orNothing(f.prior, op == change.OpInsert)
	case Key:
		return f.key()
	case Update:
		f.load()
		return orNothing(f.diff, op == change.OpInsert || op == change.OpReplace || op == change.OpDelete)
	case Op, DB, Coll:
	}
	return change.Value{}, false, nil
}

// orNothing returns a document if it is one. If not, it is absent where there never is one, and not known elsewhere.
func orNothing(v change.Value, never bool) (change.Value, bool, error) {
	if v.Document() != nil {
		return v, true, nil
	}
	return change.Value{}, never, nil
}

func (f *Facts) key() (change.Value, bool, error) {
	key := f.event.Key()
	return change.Value{Type: change.TypeDocument, Data: key}, key != nil, nil
}

// documentID is the _id of doc, or where doc is not known the one of the key: an _id never changes.
func (f *Facts) documentID() (change.Value, bool, error) {
	if doc, known, _ := f.Value(Doc); known {
		v, err := lookupField(doc.Data, "_id")
		return v, true, err
	}
	if key := f.event.Key(); key != nil {
		v, err := lookupField(key, "_id")
		return v, !v.IsZero(), err
	}
	return change.Value{}, false, nil
}

// name returns op or one of the names of ns. A name that the event leaves out is not known: the event concerns all of them. Nor is the
// operation of an event that was skipped, or of a document of a snapshot.
func (f *Facts) name(r Root) (text []byte, known bool) {
	switch r {
	case Op:
		text = f.event.OpName()
		op := f.event.Op()
		return text, op != change.OpSkipped && op != change.OpSnapshot && text != nil
	case DB:
		text = f.db
	case Coll:
		text = f.coll
	case Doc, DocID, Before, Key, Update:
	}
	return text, len(text) > 0
}

// IsName reports whether the variable is a name (op, ns.db, ns.coll) and not part of a document.
func (r Root) IsName() bool { return r >= Op }

// ResolveName implements interpreter.Activation.
func (f *Facts) ResolveName(name string) (any, bool) {
	if name == meterName {
		return &f.meter, true
	}
	r, ok := rootOf(name)
	if !ok {
		return nil, false
	}
	if r.IsName() {
		if text, known := f.name(r); known {
			return types.String(text), true
		}
		return unknowns[r], true
	}
	switch v, known, err := f.Value(r); {
	case err != nil:
		return types.WrapErr(err), true
	case known:
		return toCEL(v, &f.meter), true
	}
	return unknowns[r], true
}

// Parent implements interpreter.Activation.
func (f *Facts) Parent() interpreter.Activation { return nil }
