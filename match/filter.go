package match

import (
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match/expr"
)

// MaxSource is how many bytes an expression may have.
const MaxSource = expr.MaxSource

// Deletes says which deletes a filter gets. A delete tells the key of its document and nothing else of it.
type Deletes uint8

// The policies. What the filter says of op, ns, key and doc._id holds for deletes too.
const (
	// DeletesAll delivers every delete of which the filter cannot tell that it is not meant: where it reads doc, those of all documents.
	DeletesAll Deletes = iota
	// DeletesNone delivers no delete.
	DeletesNone
	// DeletesBefore reads the image before the delete as doc; where the server has none, as DeletesAll.
	DeletesBefore
)

// Carries says what the node's change stream gives beside the changes themselves. It follows from the node's configuration, not from
// the subscriber.
type Carries struct {
	Document bool // updates come with the full document
	Before   bool // changes come with the image before, where the server has one
}

// A Filter says which events a subscription gets. The zero Filter gets all.
type Filter struct {
	// Source is an expression in CEL over doc, before, op, ns, key and update, at most MaxSource bytes; empty is true. docs/filters.md
	// says what it may contain.
	Source string
	// DB and Coll are names; empty means all. See Selector.
	DB, Coll string
	// Ops are operations; none means all. See Selector.
	Ops []change.Op
	// Deletes defaults to DeletesAll.
	Deletes Deletes
	// Carries defaults to a stream without documents and images.
	Carries Carries
}

// Compile checks a filter. Its errors are faults: STRM-FILTER-INVALID (with the place in the expression), STRM-FILTER-TOO-LARGE,
// STRM-FILTER-NEEDS-DOCUMENT and STRM-FILTER-NEEDS-BEFORE.
func Compile(f Filter) (*Program, error) {
	p := &Program{
		filter:   f,
		selector: Selector{DB: f.DB, Coll: f.Coll, Ops: f.Ops},
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
	if err := p.refuseWhatIsNotThere(checked); err != nil {
		return nil, err
	}
	if p.expression, err = checked.Compile(); err != nil {
		return nil, err
	}
	return p, nil
}

// refuseWhatIsNotThere refuses filters that read what the stream does not carry, where they would not match but seem to.
func (p *Program) refuseWhatIsNotThere(checked *expr.Checked) error {
	if !p.filter.Carries.Document && p.wants(change.OpUpdate) && checked.Reads(expr.Doc, change.OpUpdate) {
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
