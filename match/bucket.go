package match

import (
	"sync/atomic"

	"github.com/mongostream/streamer/match/expr"
)

// A bucket holds the subscriptions of one scope.
type bucket struct {
	// fields are by variable, separately for filters that read the pre-image of a delete as doc.
	fields [2][expr.Roots]field
	// rest are the subscriptions evaluated for every event.
	rest list[*subscription]
	size int // for writers only
}

// A field is a path in documents, with the subscriptions that test it and its nested fields.
type field struct {
	number int // identifies the field among those visited
	users  atomic.Int64
	equal  table[followers]
	ranges [expr.Classes]ranges[*subscription]
	inside table[*field]
}

// followers are the subscriptions to one value. Most have one, which needs no slice.
type followers struct {
	first *subscription
	more  []*subscription // copied on write
}

func (f followers) count() int { return 1 + len(f.more) }

func (f followers) without(s *subscription) followers {
	if s != f.first {
		return followers{f.first, withoutValue(f.more, s)}
	}
	return followers{f.more[0], withoutValue(f.more, f.more[0])}
}

// numbers allocates field numbers and reuses released ones.
type numbers struct {
	next int
	free []int
}

func (n *numbers) take() int {
	if last := len(n.free) - 1; last >= 0 {
		number := n.free[last]
		n.free = n.free[:last]
		return number
	}
	n.next++
	return n.next
}

func (n *numbers) giveBack(number int) { n.free = append(n.free, number) }

func (b *bucket) start(c condition) *field {
	image := 0
	if c.image {
		image = 1
	}
	return &b.fields[image][c.root]
}

// crowd counts the subscriptions with the same equality.
func (b *bucket) crowd(c condition) int {
	f := b.start(c)
	for _, name := range c.path {
		inside, ok := f.inside.Get([]byte(name))
		if !ok {
			return len(c.keys)
		}
		f = inside
	}
	crowd := len(c.keys)
	for _, key := range c.keys {
		if list, ok := f.equal.Get([]byte(key)); ok {
			crowd += list.count()
		}
	}
	return crowd
}

func (b *bucket) add(s *subscription, n *numbers) {
	b.size++
	if len(s.access.conditions) == 0 {
		b.rest.Add(s)
		return
	}
	for i, c := range s.access.conditions {
		f := b.start(c)
		f.users.Add(1)
		for _, name := range c.path {
			inside, ok := f.inside.Get([]byte(name))
			if !ok {
				inside = &field{number: n.take()}
				f.inside.Put(name, inside)
			}
			f = inside
			f.users.Add(1)
		}
		f.add(s, c, i)
	}
}

// add adds a subscription; place distinguishes its conditions.
func (f *field) add(s *subscription, c condition, place int) {
	if c.keys == nil {
		f.ranges[c.class].Insert(c.interval, s.orderAt(place), s)
		return
	}
	for _, key := range c.keys {
		list, ok := f.equal.Get([]byte(key))
		if ok {
			// Appending after what readers have seen costs no copy.
			list.more = append(list.more, s)
		} else {
			list.first = s
		}
		f.equal.Put(key, list)
	}
}

// orderAt returns a unique number for each condition: a filter has fewer than 4096 of them.
func (s *subscription) orderAt(place int) uint64 { return s.order*MaxSource + uint64(place) }

func (b *bucket) remove(s *subscription, n *numbers) {
	b.size--
	if len(s.access.conditions) == 0 {
		b.rest.Remove(s)
		return
	}
	for i, c := range s.access.conditions {
		b.start(c).remove(s, c, i, c.path, n)
	}
}

// remove removes a subscription from the field at the path, and unused fields.
func (f *field) remove(s *subscription, c condition, place int, path []string, n *numbers) {
	f.users.Add(-1)
	if len(path) > 0 {
		inside, _ := f.inside.Get([]byte(path[0]))
		inside.remove(s, c, place, path[1:], n)
		if inside.users.Load() == 0 {
			f.inside.Delete(path[0])
			n.giveBack(inside.number)
		}
		return
	}
	if c.keys == nil {
		f.ranges[c.class].Remove(c.interval, s.orderAt(place))
		return
	}
	for _, key := range c.keys {
		list, _ := f.equal.Get([]byte(key))
		if list.count() == 1 {
			f.equal.Delete(key)
			continue
		}
		f.equal.Put(key, list.without(s))
	}
}
