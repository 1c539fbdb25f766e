package match

import "github.com/mongostream/streamer/match/expr"

// MaxCost is the most that one evaluation of a filter can cost. A unit is about 10 ns; see
// expr.MaxCost.
const MaxCost = expr.MaxCost

// A Meter bounds the cost of the evaluations of an Index.Match, and gets their actual cost. Match
// calls it from its own goroutine, for each evaluation first Grant and then Spent.
type Meter interface {
	// Grant returns how many units the evaluation of a subscription may cost, at most MaxCost. With
	// 0 the filter is not evaluated, does not match, and Spent is not called.
	Grant(id ID) int
	// Spent reports the cost of the evaluation, and its error. An evaluation that needs more than
	// was granted ends with STRM-FILTER-COST: with less than MaxCost this says nothing about the
	// filter.
	Spent(id ID, units int, err error)
}

// A Report is a Meter that grants everything and is called with the errors.
type Report func(ID, error)

var _ Meter = Report(nil)

// Grant implements Meter.
func (r Report) Grant(ID) int { return MaxCost }

// Spent implements Meter.
func (r Report) Spent(id ID, _ int, err error) {
	if err != nil {
		r(id, err)
	}
}
