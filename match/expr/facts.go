package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/change"
)

// A Root is a variable of filters. doc._id is separate because it is known when the rest of doc is
// not; ns has no value, only its names have.
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

// unknowns are the values of unknown variables: any result that depends on one is unknown.
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

// Facts are the content of an event for filters. They are read once, on demand, for all filters.
type Facts struct {
	event    *change.Event
	db, coll []byte
	// imageAsDoc means that doc is the pre-image of a delete.
	imageAsDoc bool

	read                  bool
	document, prior, diff change.Value
	meter                 costMeter
	grant, spent          int    // of the evaluation, in units
	steps                 uint64 // of CEL, that it may take
}

var _ interpreter.Activation = (*Facts)(nil)

// Of sets the event.
func (f *Facts) Of(e *change.Event) { *f = Facts{event: e, db: e.DB(), coll: e.Coll(), grant: MaxCost} }

// Grant begins an evaluation that may cost the given units, at most MaxCost. An evaluation that
// would cost more ends with STRM-FILTER-COST.
func (f *Facts) Grant(units int) { f.grant, f.spent = min(units, MaxCost), 0 }

// Spent returns the cost of all evaluations since Grant, in units.
func (f *Facts) Spent() int { return f.spent }

// Event returns the event.
func (f *Facts) Event() *change.Event { return f.event }

// Namespace overrides the namespace of the event, for the target of a rename.
func (f *Facts) Namespace(db, coll []byte) { f.db, f.coll = db, coll }

// ImageAsDoc sets whether doc is the pre-image of a delete.
func (f *Facts) ImageAsDoc(yes bool) { f.imageAsDoc = yes }

// load finds the fields that filters read; the first of duplicate fields counts.
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

// Value returns the value of a variable; known is false if the event does not carry it, and absent
// means that it does not exist. For op and ns see name.
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

// orNothing returns v if it is a document; else absent if the operation never has one, and unknown
// otherwise.
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

// documentID returns the _id of doc or, if doc is unknown, that of the key.
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

// name returns op or a name of ns. A name that the event omits is unknown, because the event
// concerns all. So is the operation of a skipped event or of a snapshot's document.
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
