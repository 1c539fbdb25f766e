package match

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
)

// An ID names a subscription in an Index.
type ID uint64

// An Index holds subscriptions and finds those that an event matches, without asking each. Match says what Program.Match of each would
// say. The zero Index is empty and ready for use.
//
// Add and Remove may be called at any time, also while events are matched: Match never waits for them. A subscription takes part in
// every Match that begins after its Add returned, and in none that begins after its Remove returned.
type Index struct {
	mu struct {
		sync.Mutex // serializes writers

		order  uint64
		number numbers
	}
	subscriptions sync.Map // of ID to *subscription
	size          atomic.Int64
	// buckets are by the namespace that filters are limited to, a missing name meaning all. shapes counts them by which names they have.
	buckets table[*bucket]
	shapes  [shapeCount]atomic.Int64
}

// A subscription is a program in the index. What every hit needs stands in front.
type subscription struct {
	live atomic.Bool
	sure bool   // one condition that holds decides
	many bool   // it may be found more than once
	ops  uint16 // bits of the operations that it wants
	id   ID

	program *Program
	order   uint64
	scope   scope
	access  access
}

// A scope is the namespace that a filter is limited to.
type scope struct{ db, coll string }

// The shapes of a scope: which names it has.
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

// key names a bucket. MongoDB allows no zero byte in names; events that have one are not looked up.
func (s scope) key() string { return s.db + "\x00" + s.coll }

// Len returns how many subscriptions there are.
func (x *Index) Len() int { return int(x.size.Load()) }

// Add adds a subscription. It returns false, and does nothing, if the ID is taken.
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
	s.sure, s.many, s.ops = s.access.sure, s.access.isMany(), p.operations()
	b.add(s, &x.mu.number)
	if !ok {
		x.buckets.Put(s.scope.key(), b)
		x.shapes[s.scope.shape()].Add(1)
	}
	x.size.Add(1)
	// A subscription may stand in several places: it counts from now on, in all of them at once.
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

// Match appends the IDs of the subscriptions that the event matches to dst, each once, in no order. A filter that cannot be evaluated is
// handed to report, which may be nil, with the error that Program.Match returns, and does not match.
func (x *Index) Match(e *change.Event, dst []ID, report func(ID, error)) []ID {
	if x.Len() == 0 {
		return dst
	}
	m := takeMatcher()
	defer m.giveBack()
	m.facts.Of(e)
	if isIndexed(e) && m.find(x, e) {
		for _, h := range m.hits {
			dst = m.decide(h, dst, report)
		}
		return dst
	}
	// An event of a whole collection, or one that is not as MongoDB sends them: rare enough to ask everyone.
	x.subscriptions.Range(func(_, s any) bool {
		dst = m.ask(s.(*subscription), dst, report)
		return true
	})
	return dst
}

// isIndexed reports whether an event is of one document, so that the index knows who may want it.
func isIndexed(e *change.Event) bool {
	return e.Key() != nil && len(e.DB()) > 0 && len(e.Coll()) > 0 && len(e.ToDB()) == 0 && e.Op() != change.OpSkipped &&
		bytes.IndexByte(e.DB(), 0) < 0 && bytes.IndexByte(e.Coll(), 0) < 0
}
