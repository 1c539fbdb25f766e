package match

import (
	"errors"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match/expr"
)

// A Program is a compiled filter. It is safe for concurrent use.
type Program struct {
	warning    string
	filter     Filter
	selector   Selector
	expression *expr.Expression // always true without a source
	looksUp    bool
}

// Warning returns why the filter is never true, or not when it seems to be; it is for people, and
// empty where nothing is known against it.
func (p *Program) Warning() string { return p.warning }

// Filter returns the source of the program.
func (p *Program) Filter() Filter { return p.filter }

// IsOfAll reports whether the filter looks at no document: it has neither an expression nor an _id,
// so that it matches all documents of a collection or none.
func (p *Program) IsOfAll() bool { return p.filter.Source == "" && p.filter.Document == "" }

// LooksUp reports whether the filter reads documents that MongoDB looks up when a change is read,
// so that it may decide otherwise about a change that is read again.
func (p *Program) LooksUp() bool { return p.looksUp }

// Size returns an estimate of the memory that the program takes, in bytes, with its place in an
// index.
func (p *Program) Size() int {
	f := &p.filter
	return baseBytes + p.expression.Bytes + len(f.Source) + len(f.DB) + len(f.Coll) + len(f.Ops) + len(f.Document)
}

// baseBytes is the memory of a subscription without an expression.
const baseBytes = 300

// IsDecided reports whether the filter is decided by comparisons alone, whose cost is small.
func (p *Program) IsDecided() bool { return p.expression.Simple }

// Match reports whether the event matches. If the event lacks a value that the filter reads (the
// document of a delete, any document of an event of a whole collection), it matches unless it is
// false for every value. The error is a fault, STRM-FILTER-EVALUATION or STRM-FILTER-COST.
func (p *Program) Match(e *change.Event) (bool, error) {
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	return p.match(&m.facts, p.expression.Eval)
}

// Admits reports whether events of an operation may match, by the filter's operations and its
// policy for deletes.
func (p *Program) Admits(op change.Op) bool { return always(op) || p.wants(op) }

// Holds is Match whatever the event's operation is.
func (p *Program) Holds(e *change.Event) (bool, error) {
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	if !p.IsOf(e) {
		return false, nil
	}
	return p.evaluate(&m.facts, p.expression.Eval)
}

// match calls evaluate if the filter admits the event's operation.
func (p *Program) match(f *expr.Facts, eval func(*expr.Facts) (expr.Verdict, error)) (bool, error) {
	if e := f.Event(); !p.admits(e) || !p.selector.reaches(e) || !p.IsOf(e) {
		return false, nil
	}
	return p.evaluate(f, eval)
}

// IsOf reports whether an event may be of the document that the filter selects.
func (p *Program) IsOf(e *change.Event) bool {
	if p.filter.Document == "" {
		return true
	}
	id := e.ID()
	return id.IsZero() || string(change.AppendCanonical(nil, id)) == p.filter.Document
}

// evaluate calls eval; for a rename, for the source and for the target namespace, as far as the
// filter selects them: its subscriber may be one that may not read the name of the other.
func (p *Program) evaluate(f *expr.Facts, eval func(*expr.Facts) (expr.Verdict, error)) (bool, error) {
	e := f.Event()
	f.ImageAsDoc(p.filter.Deletes == DeletesBefore)
	v := expr.No
	var err error
	if p.selector.fits(e.DB(), e.Coll()) {
		v, err = eval(f)
	}
	if v == expr.No && len(e.ToDB()) > 0 && p.selector.fits(e.ToDB(), e.ToColl()) {
		f.Namespace(e.ToDB(), e.ToColl())
		to, toErr := eval(f)
		f.Namespace(e.DB(), e.Coll())
		if v, err = to, errors.Join(err, toErr); v != expr.No {
			err = nil
		}
	}
	return v != expr.No, err
}

// admits reports whether the filter admits the event's operation.
func (p *Program) admits(e *change.Event) bool { return p.Admits(e.Op()) }

// always reports whether an operation is delivered regardless of filters: a skipped event may be
// any, and a snapshot's document was filtered before.
func always(op change.Op) bool { return op == change.OpSkipped || op == change.OpSnapshot }

// wants reports whether the filter's operations and its policy for deletes admit the operation.
func (p *Program) wants(op change.Op) bool {
	if op == change.OpDelete && p.filter.Deletes == DeletesNone {
		return false
	}
	return p.selector.wants(op)
}

// operations returns a bit for each operation that the filter admits.
func (p *Program) operations() (bits uint16) {
	for op := change.OpOther; op <= change.OpSnapshot; op++ {
		if always(op) || p.wants(op) {
			bits |= 1 << op
		}
	}
	return bits
}
