package match

import (
	"errors"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match/expr"
)

// A Program is a checked filter. It is safe for concurrent use.
type Program struct {
	filter     Filter
	selector   Selector
	expression *expr.Expression // of a filter without a source: empty, and always true
}

// Filter returns what the program was compiled from.
func (p *Program) Filter() Filter { return p.filter }

// Match reports whether the event matches. What the event does not tell (the document of a delete, anything of a document for an event of
// a whole collection) makes a filter match unless it says no whatever that may be. An error is a fault, STRM-FILTER-EVALUATION or
// STRM-FILTER-COST: the filter cannot say.
func (p *Program) Match(e *change.Event) (bool, error) {
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	return p.match(&m.facts, p.expression.Eval)
}

// match asks eval, for a rename about the namespace it leaves and the one it makes.
func (p *Program) match(f *expr.Facts, eval func(*expr.Facts) (expr.Verdict, error)) (bool, error) {
	e := f.Event()
	if !p.admits(e) || !p.selector.reaches(e) {
		return false, nil
	}
	f.ImageAsDoc(p.filter.Deletes == DeletesBefore)
	v, err := eval(f)
	if v == expr.No && len(e.ToDB()) > 0 {
		f.Namespace(e.ToDB(), e.ToColl())
		to, toErr := eval(f)
		f.Namespace(e.DB(), e.Coll())
		if v, err = to, errors.Join(err, toErr); v != expr.No {
			err = nil
		}
	}
	return v != expr.No, err
}

// admits reports whether the event's operation is wanted.
func (p *Program) admits(e *change.Event) bool { return always(e.Op()) || p.wants(e.Op()) }

// always reports whether filters have no say in an operation: the place of an event that was skipped may be of any, and the document of a
// snapshot is the outcome of some.
func always(op change.Op) bool { return op == change.OpSkipped || op == change.OpSnapshot }

// wants reports whether the filter's list of operations and its policy let the operation through.
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
