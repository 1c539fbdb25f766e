package match

import (
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match/expr"
)

// A matcher is the reusable state of one Match.
type matcher struct {
	facts expr.Facts
	hits  []hit
	key   []byte
	// visited holds, by field number, the round in which the field was visited: the first of
	// duplicate fields counts.
	visited []uint32
	round   uint32
	// seen are the decided subscriptions with several conditions.
	seen map[*subscription]struct{}
}

// A hit is a subscription that may match; met says that a condition of its access holds.
type hit struct {
	subscription *subscription
	met          bool
}

//nolint:gochecknoglobals // a pool
var matchers = sync.Pool{New: func() any { return new(matcher) }}

func takeMatcher() *matcher { return matchers.Get().(*matcher) }

// giveBack releases the event and the subscriptions.
func (m *matcher) giveBack() {
	m.facts = expr.Facts{}
	clear(m.hits)
	m.hits = m.hits[:0]
	clear(m.seen)
	matchers.Put(m)
}

// find collects the subscriptions that may match. It returns false if the event is malformed.
func (m *matcher) find(x *Index, e *change.Event) bool {
	if m.round++; m.round == 0 {
		clear(m.visited)
		m.round = 1
	}
	for shape := range x.shapes {
		if x.shapes[shape].Load() == 0 {
			continue
		}
		m.key = m.key[:0]
		if shape&hasDB != 0 {
			m.key = append(m.key, e.DB()...)
		}
		m.key = append(m.key, 0)
		if shape&hasColl != 0 {
			m.key = append(m.key, e.Coll()...)
		}
		if b, ok := x.buckets.Get(m.key); ok && !m.collect(b) {
			m.hits = m.hits[:0]
			return false
		}
	}
	return true
}

// collect visits every variable that is tested.
func (m *matcher) collect(b *bucket) bool {
	for _, s := range b.rest.Values() {
		m.surely(s)
	}
	for image := range b.fields {
		m.facts.ImageAsDoc(image == 1)
		for r := range b.fields[image] {
			f := &b.fields[image][r]
			if f.users.Load() == 0 {
				continue
			}
			switch v, known, err := m.facts.Value(expr.Root(r)); {
			case err != nil:
				return false
			case !known:
				m.everyone(f)
			case !m.visit(f, v):
				return false
			}
		}
	}
	return true
}

// visit visits a field with a value.
func (m *matcher) visit(f *field, v change.Value) bool {
	class := expr.ClassOf(v)
	if class == expr.Absent {
		// Equal to no constant, in no range, and nothing inside.
		return true
	}
	m.probe(f, v, class)
	if f.inside.Len() == 0 {
		return true
	}
	if class == expr.Document {
		return m.walk(f, v.Data)
	}
	// Selecting a field of this value is an error that every such filter must report.
	for _, inside := range f.inside.All() {
		m.everyone(inside)
	}
	return true
}

// probe finds the subscriptions for a value.
func (m *matcher) probe(f *field, v change.Value, class expr.Class) {
	scalar := expr.Scalar{Class: class}
	if class < expr.Document {
		scalar = expr.ScalarOf(v)
	}
	ordinary := !scalar.IsNaN() && class < expr.Document
	if ordinary && f.equal.Len() > 0 {
		m.key = expr.AppendKey(m.key[:0], v)
		if list, ok := f.equal.Get(m.key); ok {
			m.surely(list.first)
			for _, s := range list.more {
				m.surely(s)
			}
		}
	}
	for c := range f.ranges {
		switch {
		case f.ranges[c].IsEmpty():
		case expr.Class(c) != class:
			// Values of different classes have no order: an error to report.
			f.ranges[c].Each(m.maybe)
		case ordinary:
			f.ranges[c].Stab(scalar, m.surely)
		}
	}
}

func (m *matcher) maybe(s *subscription)  { m.hits = append(m.hits, hit{s, false}) }
func (m *matcher) surely(s *subscription) { m.hits = append(m.hits, hit{s, true}) }

// walk visits the tested fields of a document in one pass, up to the last of them.
func (m *matcher) walk(f *field, doc []byte) bool {
	left := f.inside.Len()
	for at := expr.First; left > 0; {
		name, v, next, err := change.Element(doc, at)
		if err != nil {
			return false
		}
		if name == nil {
			return true
		}
		if inside, ok := f.inside.Get(name); ok && m.isFirst(inside) {
			left--
			if !m.visit(inside, v) {
				return false
			}
		}
		at = next
	}
	return true
}

// isFirst reports whether the field is visited for the first time in this event.
func (m *matcher) isFirst(f *field) bool {
	if f.number >= len(m.visited) {
		m.visited = append(m.visited, make([]uint32, f.number+1-len(m.visited))...)
	}
	if m.visited[f.number] == m.round {
		return false
	}
	m.visited[f.number] = m.round
	return true
}

// everyone finds all subscriptions that test a field or a nested one.
func (m *matcher) everyone(f *field) {
	for _, list := range f.equal.All() {
		m.maybe(list.first)
		for _, s := range list.more {
			m.maybe(s)
		}
	}
	for c := range f.ranges {
		f.ranges[c].Each(m.maybe)
	}
	for _, inside := range f.inside.All() {
		m.everyone(inside)
	}
}

// decide decides a hit.
func (m *matcher) decide(h hit, dst []ID, meter Meter) []ID {
	s := h.subscription
	if !s.live.Load() {
		return dst
	}
	if s.ops&(1<<m.facts.Event().Op()) == 0 {
		return dst
	}
	if s.many {
		if _, again := m.seen[s]; again {
			return dst
		}
		if m.seen == nil {
			m.seen = make(map[*subscription]struct{})
		}
		m.seen[s] = struct{}{}
	}
	if h.met && s.sure {
		return append(dst, s.id)
	}
	return m.ask(s, dst, meter)
}

// ask evaluates the whole filter.
func (m *matcher) ask(s *subscription, dst []ID, meter Meter) []ID {
	if !s.live.Load() {
		return dst
	}
	grant := MaxCost
	if meter != nil {
		if grant = meter.Grant(s.id); grant <= 0 {
			return dst
		}
	}
	m.facts.Grant(grant)
	matched, err := s.program.match(&m.facts, s.program.expression.Eval)
	if meter != nil {
		meter.Spent(s.id, m.facts.Spent(), err)
	}
	if matched && err == nil {
		return append(dst, s.id)
	}
	return dst
}
