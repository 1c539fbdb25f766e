package posting

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"mongostream/match/bsonval"
)

// A Bound is an end of an interval.
type Bound struct {
	At bsonval.Scalar
	// Open: the value itself is outside.
	Open bool
	// Far: there is no bound on this side.
	Far bool
}

// An Interval is what a range accepts. Its bounds are of one ordered class, and none is NaN.
type Interval struct{ Low, High Bound }

// A Tree holds intervals of one class with their values and finds those that contain a point. It is a treap whose changed paths are
// copied, each node knowing the highest end below it. The zero Tree is empty and ready for use.
type Tree[V any] struct {
	root atomic.Pointer[node[V]]
}

type node[V any] struct {
	// What a reader needs of most nodes stands together: prefixes of the two ends and of the highest below, which mostly decide.
	low, high, top uint64
	left, right    *node[V]
	value          V

	Interval

	highest  Bound
	order    uint64 // tells equal low ends apart
	priority uint64
}

// IsEmpty reports whether there are no intervals.
func (t *Tree[V]) IsEmpty() bool { return t.root.Load() == nil }

// Insert adds an interval; order tells it from others with the same low end.
func (t *Tree[V]) Insert(in Interval, order uint64, value V) {
	n := &node[V]{Interval: in, order: order, value: value, priority: rand.Uint64(), high: math.MaxUint64}
	if !in.Low.Far {
		n.low = in.Low.At.Prefix()
	}
	if !in.High.Far {
		n.high = in.High.At.Prefix()
	}
	n.fix()
	t.root.Store(t.root.Load().insert(n))
}

// Remove removes the interval that was inserted under this order.
func (t *Tree[V]) Remove(in Interval, order uint64) {
	t.root.Store(t.root.Load().remove(in.Low, order))
}

// Stab yields the values of the intervals that contain the point, which is of the tree's class and not NaN.
func (t *Tree[V]) Stab(point bsonval.Scalar, yield func(V)) {
	t.root.Load().stab(point.Prefix(), &point, yield)
}

// Each yields every value.
func (t *Tree[V]) Each(yield func(V)) { t.root.Load().each(yield) }

func (n *node[V]) stab(prefix uint64, point *bsonval.Scalar, yield func(V)) {
	for n != nil && (n.top > prefix || n.top == prefix && n.highest.reaches(point)) {
		n.left.stab(prefix, point, yield)
		if n.low > prefix || n.low == prefix && !n.Low.lets(point) {
			// Everything to the right begins later still.
			return
		}
		if n.high > prefix || n.high == prefix && n.High.reaches(point) {
			yield(n.value)
		}
		n = n.right
	}
}

func (n *node[V]) each(yield func(V)) {
	for ; n != nil; n = n.right {
		n.left.each(yield)
		yield(n.value)
	}
}

// lets reports whether an interval with this low end contains the point or ends before it.
func (b *Bound) lets(point *bsonval.Scalar) bool {
	if b.Far {
		return true
	}
	order := b.At.Compare(*point)
	return order < 0 || order == 0 && !b.Open
}

// reaches reports whether an interval with this high end contains the point or begins behind it.
func (b *Bound) reaches(point *bsonval.Scalar) bool {
	if b.Far {
		return true
	}
	order := b.At.Compare(*point)
	return order > 0 || order == 0 && !b.Open
}

// compareLow orders low ends by what they let in first.
func compareLow(a, b Bound) int {
	switch {
	case a.Far && b.Far:
		return 0
	case a.Far:
		return -1
	case b.Far:
		return 1
	}
	if order := a.At.Compare(b.At); order != 0 || a.Open == b.Open {
		return order
	}
	if a.Open {
		return 1
	}
	return -1
}

// higher returns the end that reaches further.
func higher(a, b Bound) Bound {
	if a.Far || b.Far {
		return Bound{Far: true}
	}
	switch order := a.At.Compare(b.At); {
	case order > 0, order == 0 && !a.Open:
		return a
	}
	return b
}

func (n *node[V]) before(low Bound, order uint64) bool {
	if c := compareLow(n.Low, low); c != 0 {
		return c < 0
	}
	return n.order < order
}

func (n *node[V]) fix() {
	n.highest, n.top = n.High, n.high
	for _, child := range []*node[V]{n.left, n.right} {
		if child != nil {
			n.highest, n.top = higher(n.highest, child.highest), max(n.top, child.top)
		}
	}
}

// with copies the node with other children.
func (n *node[V]) with(left, right *node[V]) *node[V] {
	c := *n
	c.left, c.right = left, right
	c.fix()
	return &c
}

func (n *node[V]) insert(added *node[V]) *node[V] {
	switch {
	case n == nil:
		return added
	case added.priority > n.priority:
		left, right := n.split(added.Low, added.order)
		return added.with(left, right)
	case n.before(added.Low, added.order):
		return n.with(n.left, n.right.insert(added))
	}
	return n.with(n.left.insert(added), n.right)
}

// split divides into what stands before the place and what does not.
func (n *node[V]) split(low Bound, order uint64) (left, right *node[V]) {
	if n == nil {
		return nil, nil
	}
	if n.before(low, order) {
		inner, right := n.right.split(low, order)
		return n.with(n.left, inner), right
	}
	left, inner := n.left.split(low, order)
	return left, n.with(inner, n.right)
}

func (n *node[V]) remove(low Bound, order uint64) *node[V] {
	switch {
	case n == nil:
		return nil
	case n.order == order && compareLow(n.Low, low) == 0:
		return merge(n.left, n.right)
	case n.before(low, order):
		return n.with(n.left, n.right.remove(low, order))
	}
	return n.with(n.left.remove(low, order), n.right)
}

func merge[V any](a, b *node[V]) *node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		return a.with(a.left, merge(a.right, b))
	}
	return b.with(merge(a, b.left), b.right)
}
