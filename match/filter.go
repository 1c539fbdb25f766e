package match

import (
	"fmt"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match/expr"
)

// MaxSource bounds an expression, in bytes.
const MaxSource = expr.MaxSource

// Deletes says which deletes match. A delete carries only the key of its document.
type Deletes uint8

// The policies. Conditions on op, ns, key and doc._id apply to deletes in any case.
const (
	// DeletesAll matches every delete that the filter cannot exclude: if it reads doc, deletes of
	// all documents.
	DeletesAll Deletes = iota
	// DeletesNone matches no delete.
	DeletesNone
	// DeletesBefore reads the pre-image of a delete as doc. Without a pre-image it is DeletesAll.
	DeletesBefore
)

// Carries describes the contents of the node's change stream. It depends on the node's
// configuration, not on the subscriber.
type Carries struct {
	Document bool // updates carry the full document
	LookedUp bool // it is looked up when the change is read, and may be newer
	Before   bool // changes carry the pre-image, if the server has it
	Without  Ops  // operations that are not read
}

// Ops is a set of operations.
type Ops uint16

// OpsOf returns the set of some operations.
func OpsOf(ops ...change.Op) (set Ops) {
	for _, op := range ops {
		set |= 1 << op
	}
	return set
}

// Has reports whether the set has an operation.
func (s Ops) Has(op change.Op) bool { return s&(1<<op) != 0 }

// A Filter selects events for a subscription. The zero Filter selects all.
type Filter struct {
	// Source is a CEL expression over doc, before, op, ns, key and update; empty is true. See
	// docs/filters.md.
	Source string
	// DB and Coll are names; empty selects all. See Selector.
	DB, Coll string
	// Ops are operations; empty selects all. See Selector.
	Ops []change.Op
	// Deletes defaults to DeletesAll.
	Deletes Deletes
	// Carries defaults to a stream without documents and pre-images.
	Carries Carries
	// Document selects the changes of one document, and those of whole collections: it is the
	// canonical form of an _id (change.AppendCanonical). Empty selects all.
	Document string
}

// Includes reports whether changes of a collection may match the filter, by their namespace.
func (f Filter) Includes(ns change.Namespace) bool {
	return (f.DB == "" || f.DB == ns.DB) && (f.Coll == "" || f.Coll == ns.Coll)
}

// Compile validates and compiles a filter. Its errors are faults: STRM-FILTER-INVALID (with the
// position in the expression), STRM-FILTER-TOO-LARGE, STRM-FILTER-NEEDS-DOCUMENT,
// STRM-FILTER-NEEDS-BEFORE, and STRM-SESSION-UNWATCHED where it asks for operations that are not
// read.
func Compile(f Filter) (*Program, error) {
	p := &Program{
		filter:   f,
		selector: Selector{DB: f.DB, Coll: f.Coll, Ops: f.Ops},
	}
	for _, op := range f.Ops {
		if f.Carries.Without.Has(op) {
			return nil, fault.Newf(fault.SessionUnwatched, "the node reads no changes of operation %s", op)
		}
	}
	if f.Deletes == DeletesBefore && !f.Carries.Before {
		return nil, fault.Newf(fault.FilterNeedsBefore, "deletes: before")
	}
	if len(f.Source) > MaxSource {
		return nil, fault.Newf(fault.FilterTooLarge, "%d bytes, at most %d", len(f.Source), MaxSource)
	}
	p.expression = expr.Always()
	if strings.TrimSpace(f.Source) == "" {
		return p, nil
	}
	checked, err := expr.Check(f.Source)
	if err != nil {
		return nil, err
	}
	if err := p.checkCarried(checked); err != nil {
		return nil, err
	}
	if p.expression, err = checked.Compile(); err != nil {
		return nil, err
	}
	switch could, does := p.comes(checked); {
	case could && !does:
		return nil, fault.Newf(fault.SessionUnwatched, "the filter is true only for operations that the node does not read")
	case !does:
		p.warning = "The filter is never true: it asks for operations that are not selected, or that do not exist. Nothing will come."
	default:
		p.warning = pathWarning(checked)
	}
	return p, nil
}

// An operation is the name of one that events may have.
type operation string

func (o operation) String() string { return string(o) }

// operations are the names of all operations that are delivered (MongoDB manual, "Change Events").
// Streams leave out those that concern indexes, options and shards.
func operations() []operation {
	return []operation{"insert", "update", "replace", "delete", "drop", "rename", "dropDatabase", "invalidate", change.SkippedName, change.SnapshotName}
}

// comes reports whether the filter can be true for some operation, and for one that the node reads.
func (p *Program) comes(checked *expr.Checked) (could, does bool) {
	for _, name := range operations() {
		op, _ := change.ParseOp(string(name))
		if !p.wants(op) || checked.Never(name) {
			continue
		}
		could = true
		does = does || !p.filter.Carries.Without.Has(op)
	}
	return could, does
}

// pathWarning returns why the filter is not true when it seems to be; empty where nothing is known
// against it.
func pathWarning(checked *expr.Checked) string {
	path := checked.Nested()
	if path == "" {
		return ""
	}
	return fmt.Sprintf("The names in update.updatedFields are paths: updatedFields[%q] is what an update of that field has, and changed(%q) tells whether it has changed. "+
		"The filter reads a field within a field, which is there only if the update sets the whole outer field.", path, path)
}

// checkCarried rejects filters that read values that the stream does not carry and so would never
// match. It notes whether the filter reads documents that are looked up.
func (p *Program) checkCarried(checked *expr.Checked) error {
	reads := p.wants(change.OpUpdate) && checked.Reads(expr.Doc, change.OpUpdate)
	p.looksUp = reads && p.filter.Carries.LookedUp
	if reads && !p.filter.Carries.Document {
		return fault.Newf(fault.FilterNeedsDoc, "the filter reads doc, and updates come without it")
	}
	if p.filter.Carries.Before {
		return nil
	}
	for _, op := range []change.Op{change.OpUpdate, change.OpReplace, change.OpDelete} {
		if p.wants(op) && checked.Reads(expr.Before, op) {
			return fault.Newf(fault.FilterNeedsBefore, "the filter reads before on %s", op)
		}
	}
	return nil
}
