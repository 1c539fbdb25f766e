package match

import (
	"math"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/mongostream/streamer/match/expr"
)

// A bound is an end of an interval.
type bound struct {
	At expr.Scalar
	// Open excludes the value itself.
	Open bool
	// Far means that there is no bound.
	Far bool
}

// An interval is the range of a condition. Its bounds have one ordered class, and none is NaN.
type interval struct{ Low, High bound }

// blockSize bounds the intervals in a block.
const blockSize = 64

// A ranges holds intervals of one class with their values and finds those that contain a point. It
// has one writer and any number of readers, who never wait. The intervals are in blocks, ordered by
// their lower bounds. A reader scans the blocks that begin before the point and whose greatest
// upper bound reaches it, mostly by comparing arrays of prefixes. The zero ranges is empty and
// ready for use.
type ranges[V any] struct {
	directory atomic.Pointer[directory[V]]
}

// A directory lists the blocks. Directories and blocks are immutable.
type directory[V any] struct {
	lows, tops []uint64 // of each block: prefixes of the first lower and the greatest upper bound
	blocks     []*block[V]
}

type block[V any] struct {
	lows, highs []uint64 // prefixes of the bounds
	members     []*member[V]
}

type member[V any] struct {
	interval

	order uint64 // distinguishes equal lower bounds
	value V
}

// IsEmpty reports whether there are no intervals.
func (r *ranges[V]) IsEmpty() bool { return r.directory.Load() == nil }

// Insert adds an interval; order distinguishes intervals with the same lower bound.
func (r *ranges[V]) Insert(in interval, order uint64, value V) {
	added := &member[V]{interval: in, order: order, value: value}
	d := r.directory.Load()
	if d == nil {
		r.directory.Store(directoryOf([]*block[V]{blockOf([]*member[V]{added})}))
		return
	}
	i := d.find(in.Low, order)
	members := d.blocks[i].members
	at := place(members, in.Low, order)
	members = slices.Insert(slices.Clone(members), at, added)
	replaced := []*block[V]{blockOf(members)}
	if half := len(members) / 2; len(members) > blockSize {
		replaced = []*block[V]{blockOf(members[:half]), blockOf(members[half:])}
	}
	r.replace(d, i, replaced)
}

// Remove removes the interval with this order.
func (r *ranges[V]) Remove(in interval, order uint64) {
	d := r.directory.Load()
	if d == nil {
		return
	}
	i := d.find(in.Low, order)
	members := d.blocks[i].members
	at := place(members, in.Low, order)
	if at == len(members) || members[at].order != order || compareLow(members[at].Low, in.Low) != 0 {
		return
	}
	if len(members) == 1 {
		r.replace(d, i, nil)
		return
	}
	r.replace(d, i, []*block[V]{blockOf(slices.Delete(slices.Clone(members), at, at+1))})
}

// replace replaces a block. It merges small neighbours, so that removals do not leave many of them.
func (r *ranges[V]) replace(d *directory[V], i int, by []*block[V]) {
	blocks := slices.Concat(d.blocks[:i], by, d.blocks[i+1:])
	if len(by) == 1 && i+1 < len(blocks) && len(blocks[i].members)+len(blocks[i+1].members) <= blockSize/2 {
		joined := blockOf(slices.Concat(blocks[i].members, blocks[i+1].members))
		blocks = slices.Replace(blocks, i, i+2, joined)
	}
	if len(blocks) == 0 {
		r.directory.Store(nil)
		return
	}
	r.directory.Store(directoryOf(blocks))
}

// Stab yields the values of the intervals that contain the point, which has the class of the
// intervals and is not NaN.
func (r *ranges[V]) Stab(point expr.Scalar, yield func(V)) {
	d := r.directory.Load()
	if d == nil {
		return
	}
	prefix := point.Prefix()
	for i, low := range d.lows {
		if low > prefix {
			return
		}
		if d.tops[i] >= prefix {
			d.blocks[i].stab(prefix, &point, yield)
		}
	}
}

func (b *block[V]) stab(prefix uint64, point *expr.Scalar, yield func(V)) {
	for i, low := range b.lows {
		if low > prefix {
			return
		}
		high := b.highs[i]
		if high < prefix {
			continue
		}
		m := b.members[i]
		isAbove := low < prefix || m.Low.lets(point)
		if isAbove && (high > prefix || m.High.reaches(point)) {
			yield(m.value)
		}
	}
}

// Each yields every value.
func (r *ranges[V]) Each(yield func(V)) {
	d := r.directory.Load()
	if d == nil {
		return
	}
	for _, b := range d.blocks {
		for _, m := range b.members {
			yield(m.value)
		}
	}
}

// find returns the last block that begins at or before the place, else the first.
func (d *directory[V]) find(low bound, order uint64) int {
	i := sort.Search(len(d.blocks), func(i int) bool { return d.blocks[i].members[0].isAfter(low, order) })
	return max(i-1, 0)
}

// place returns the index of the first member that is not before the place.
func place[V any](members []*member[V], low bound, order uint64) int {
	return sort.Search(len(members), func(i int) bool { return !members[i].isBefore(low, order) })
}

func (m *member[V]) isBefore(low bound, order uint64) bool {
	c := compareLow(m.Low, low)
	return c < 0 || c == 0 && m.order < order
}

func (m *member[V]) isAfter(low bound, order uint64) bool {
	c := compareLow(m.Low, low)
	return c > 0 || c == 0 && m.order > order
}

func blockOf[V any](members []*member[V]) *block[V] {
	prefixes := make([]uint64, 2*len(members))
	b := &block[V]{lows: prefixes[:len(members)], highs: prefixes[len(members):], members: members}
	for i, m := range members {
		b.lows[i] = m.Low.prefix(0)
		b.highs[i] = m.High.prefix(math.MaxUint64)
	}
	return b
}

func directoryOf[V any](blocks []*block[V]) *directory[V] {
	prefixes := make([]uint64, 2*len(blocks))
	d := &directory[V]{lows: prefixes[:len(blocks)], tops: prefixes[len(blocks):], blocks: blocks}
	for i, b := range blocks {
		d.lows[i] = b.lows[0]
		d.tops[i] = slices.Max(b.highs)
	}
	return d
}

func (b *bound) prefix(far uint64) uint64 {
	if b.Far {
		return far
	}
	return b.At.Prefix()
}

// lets reports whether an interval with this lower bound contains the point or ends before it.
func (b *bound) lets(point *expr.Scalar) bool {
	if b.Far {
		return true
	}
	order := b.At.Compare(*point)
	return order < 0 || order == 0 && !b.Open
}

// reaches reports whether an interval with this upper bound contains the point or begins after it.
func (b *bound) reaches(point *expr.Scalar) bool {
	if b.Far {
		return true
	}
	order := b.At.Compare(*point)
	return order > 0 || order == 0 && !b.Open
}

// compareLow orders lower bounds.
func compareLow(a, b bound) int {
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
