package match

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
)

// An ID identifies a subscription in an Index.
type ID uint64

// An Index holds subscriptions and finds those that match an event, with the same results as
// Program.Match of each. The zero Index is empty and ready for use.
//
// Its methods are safe for concurrent use; Match never waits for Add and Remove. A subscription
// takes part in every Match that begins after Add has returned and in none that begins after Remove
// has returned.
type Index struct {
	mu struct {
		sync.Mutex // serializes writers

		order  uint64
		number numbers
	}
	subscriptions sync.Map // of ID to *subscription
	size          atomic.Int64
	// buckets are by the namespace of filters; an empty name means all. shapes counts them by the
	// names that they have.
	buckets table[*bucket]
	shapes  [shapeCount]atomic.Int64
}

// A subscription is a program in the index. The fields needed for every hit come first.
type subscription struct {
	live atomic.Bool
	sure bool   // one true condition decides
	many bool   // it may be found more than once
	ops  uint16 // bits of the operations that it wants
	id   ID

	program *Program
	order   uint64
	scope   scope
	access  access
}

// A scope is the namespace that a filter selects.
type scope struct{ db, coll string }

// The shapes of a scope: the names that it has.
const (
	hasDB      = 1
	hasColl    = 2
	shapeCount = 4
)

func (s scope) shape() int {
	shape := 0
	if s.db != "" {
		shape |= hasDB
	}
	if s.coll != "" {
		shape |= hasColl
	}
	return shape
}

// key is the key of a bucket. MongoDB allows no zero byte in names; events that have one are not
// looked up.
func (s scope) key() string { return s.db + "\x00" + s.coll }

// Len returns the number of subscriptions.
func (x *Index) Len() int { return int(x.size.Load()) }

// Add adds a subscription. It returns false if the ID is in use.
func (x *Index) Add(id ID, p *Program) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &subscription{id: id, program: p, order: x.mu.order}
	if _, taken := x.subscriptions.LoadOrStore(id, s); taken {
		return false
	}
	x.mu.order++
	s.scope = p.scope()
	b, ok := x.buckets.Get([]byte(s.scope.key()))
	if !ok {
		b = new(bucket)
	}
	s.access = b.choose(p, s.scope)
	s.sure = s.access.sure
	s.many = s.access.isMany()
	s.ops = p.operations()
	b.add(s, &x.mu.number)
	if !ok {
		x.buckets.Put(s.scope.key(), b)
		x.shapes[s.scope.shape()].Add(1)
	}
	x.size.Add(1)
	// A subscription may be in several places: it becomes active in all of them at once.
	s.live.Store(true)
	return true
}

// Remove removes a subscription. It returns false if there is none.
func (x *Index) Remove(id ID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	found, ok := x.subscriptions.LoadAndDelete(id)
	if !ok {
		return false
	}
	s := found.(*subscription)
	s.live.Store(false)
	x.size.Add(-1)
	b, _ := x.buckets.Get([]byte(s.scope.key()))
	b.remove(s, &x.mu.number)
	if b.size == 0 {
		x.buckets.Delete(s.scope.key())
		x.shapes[s.scope.shape()].Add(-1)
	}
	return true
}

// Match appends the IDs of the matching subscriptions to dst, each once, in no order. If a filter
// cannot be evaluated, it does not match, and the meter, which may be nil, gets the error of
// Program.Match. The meter is not asked about filters that the index decides.
func (x *Index) Match(e *change.Event, dst []ID, meter Meter) []ID {
	if x.Len() == 0 {
		return dst
	}
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	if isIndexed(e) && m.find(x, e) {
		for _, h := range m.hits {
			dst = m.decide(h, dst, meter)
		}
		return dst
	}
	// An event of a whole collection, or an unusual one: rare enough to evaluate every filter.
	x.subscriptions.Range(func(_, s any) bool {
		dst = m.ask(s.(*subscription), dst, meter)
		return true
	})
	return dst
}

// isIndexed reports whether an event concerns one document, so that the index applies.
func isIndexed(e *change.Event) bool {
	return e.Key() != nil && len(e.DB()) > 0 && len(e.Coll()) > 0 && len(e.ToDB()) == 0 && e.Op() != change.OpSkipped &&
		bytes.IndexByte(e.DB(), 0) < 0 && bytes.IndexByte(e.Coll(), 0) < 0
}
