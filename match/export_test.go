package match

import "github.com/mongostream/streamer/change"

// MatchInCEL is Program.Match with the whole expression evaluated by CEL, whatever the index would
// make of it.
func (p *Program) MatchInCEL(e *change.Event) (bool, error) {
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	return p.match(&m.facts, p.expression.EvalInCEL)
}

// IsSimple reports whether the filter is evaluated without CEL.
func (p *Program) IsSimple() bool { return p.expression.Simple && p.filter.Source != "" }

// Selects reports whether the event is selected.
func (s *Selector) Selects(e *change.Event) bool { return s.wants(e.Op()) && s.reaches(e) }

// Places returns how many buckets and fields the index holds on to.
func (x *Index) Places() int { return x.buckets.Len() + x.mu.number.next - len(x.mu.number.free) }
