package match

import (
	"slices"

	"github.com/mongostream/streamer/match/expr"
)

// An access tells the index how to find a subscription: by conditions, at least one true. Without
// conditions it is evaluated for every event of its scope.
type access struct {
	conditions []condition
	// sure means that a true condition decides, because the filter has no other part.
	sure bool
}

// isMany reports whether the subscription can be found more than once.
func (a *access) isMany() bool {
	return len(a.conditions) > 1 || len(a.conditions) == 1 && len(a.conditions[0].keys) > 1
}

// A condition is a place in the index.
type condition struct {
	image    bool // the filter reads the pre-image of a delete as doc
	root     expr.Root
	path     []string
	keys     []string   // for equality
	class    expr.Class // for a range
	interval interval   // for a range
}

// Estimates of how many subscriptions a range finds, against the counted ones of equalities. Ranges
// that are bounded on both sides tend to be narrow.
const (
	costInterval = 1_000
	costRange    = 100_000
	costAny      = 200_000
)

// scope returns the namespace that the filter is limited to, by its names or by its conditions on
// ns.
func (p *Program) scope() scope {
	s := scope{p.filter.DB, p.filter.Coll}
	for _, c := range p.expression.Conjuncts {
		switch name, r := namespace(c); {
		case name == "":
		case r == expr.DB && s.db == "":
			s.db = name
		case r == expr.Coll && s.coll == "":
			s.coll = name
		}
	}
	return s
}

// namespace returns the name that a conjunct requires for ns.db or ns.coll, empty if none.
func namespace(c expr.Conjunct) (name string, r expr.Root) {
	if len(c) != 1 {
		return "", 0
	}
	isName := c[0].Root == expr.DB || c[0].Root == expr.Coll
	if !isName || c[0].Relation != expr.Equals || len(c[0].Path) > 0 {
		return "", 0
	}
	if constants := c[0].Constants; len(constants) == 1 && constants[0].Class == expr.Text {
		return string(constants[0].Text()), c[0].Root
	}
	return "", 0
}

// implies reports whether the scope implies the conjunct.
func (s scope) implies(c expr.Conjunct) bool {
	name, r := namespace(c)
	return name != "" && (r == expr.DB && name == s.db || r == expr.Coll && name == s.coll)
}

// choose picks the conjunct through which few subscriptions besides this one are reached.
func (b *bucket) choose(p *Program, s scope) access {
	best, partner, least := -1, -1, 0
	for i, c := range p.expression.Conjuncts {
		if !isField(c) {
			continue
		}
		other := p.otherBound(i)
		if cost := b.cost(p, c, other >= 0); best < 0 || cost < least {
			best = i
			partner = other
			least = cost
		}
	}
	a := access{sure: p.expression.Simple && p.filter.Document == ""}
	for i, c := range p.expression.Conjuncts {
		if i != best && i != partner && !s.implies(c) {
			a.sure = false
		}
	}
	if best < 0 {
		return a
	}
	for _, one := range p.expression.Conjuncts[best] {
		a.conditions = append(a.conditions, p.condition(one))
	}
	if partner >= 0 {
		a.conditions[0].bound(p.expression.Conjuncts[partner][0])
	}
	return a
}

// isField reports whether the conjunct concerns fields of documents.
func isField(c expr.Conjunct) bool {
	return len(c) > 0 && !slices.ContainsFunc(c, func(p expr.Predicate) bool { return p.Root.IsName() })
}

// otherBound finds the conjunct with the opposite bound of the same field, -1 if there is none.
func (p *Program) otherBound(i int) int {
	c := p.expression.Conjuncts[i]
	if len(c) != 1 || c[0].Relation == expr.Equals {
		return -1
	}
	return slices.IndexFunc(p.expression.Conjuncts, func(d expr.Conjunct) bool {
		return len(d) == 1 && d[0].Relation != expr.Equals && isLow(d[0].Relation) != isLow(c[0].Relation) && d[0].Root == c[0].Root &&
			slices.Equal(d[0].Path, c[0].Path) && d[0].Constants[0].Class == c[0].Constants[0].Class
	})
}

// isLow reports whether the relation is a lower bound.
func isLow(r expr.Relation) bool { return r == expr.Greater || r == expr.AtLeast }

// cost estimates how many subscriptions a conjunct finds for a value of its field.
func (b *bucket) cost(p *Program, c expr.Conjunct, bounded bool) int {
	total := 0
	for _, one := range c {
		switch {
		case one.Relation == expr.Equals:
			total += b.crowd(p.condition(one))
		case len(c) > 1:
			total += costAny
		case bounded:
			total += costInterval
		default:
			total += costRange
		}
	}
	return total
}

// condition returns the place of a predicate in the index.
func (p *Program) condition(one expr.Predicate) condition {
	c := condition{root: one.Root, path: one.Path, image: p.filter.Deletes == DeletesBefore && (one.Root == expr.Doc || one.Root == expr.DocID)}
	if one.Relation == expr.Equals {
		for _, constant := range one.Constants {
			if key := string(constant.Key); !slices.Contains(c.keys, key) {
				c.keys = append(c.keys, key)
			}
		}
		return c
	}
	c.class = one.Constants[0].Class
	c.interval = interval{Low: bound{Far: true}, High: bound{Far: true}}
	c.bound(one)
	return c
}

// bound sets one end of an interval.
func (c *condition) bound(one expr.Predicate) {
	end := bound{At: one.Constants[0].Scalar, Open: one.Relation == expr.Greater || one.Relation == expr.Less}
	if isLow(one.Relation) {
		c.interval.Low = end
	} else {
		c.interval.High = end
	}
}
