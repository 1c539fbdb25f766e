package match

import (
	"hash/maphash"
	"iter"
	"sync/atomic"
)

// minSlots is the smallest number of slots.
const minSlots = 8

// A table is a hash table with one writer and any number of readers, who never wait. Its chains are
// immutable and replaced on write. The zero table is empty and ready for use.
type table[V any] struct {
	slots atomic.Pointer[slots[V]]
	size  atomic.Int64
}

// slots are the chains, each with an 8-bit filter that excludes most absent keys and fits into the
// CPU cache.
type slots[V any] struct {
	seed   maphash.Seed
	mask   uint64
	filter []atomic.Uint32 // four slots each
	chains []atomic.Pointer[entry[V]]
}

type entry[V any] struct {
	hash  uint64
	next  *entry[V]
	key   string
	short [shortKey]byte // the start of the key, which avoids a pointer dereference for short keys
	value V
}

// shortKey covers the keys of ObjectIds, numbers and most strings.
const shortKey = 24

func newEntry[V any](hash uint64, key string, value V, next *entry[V]) *entry[V] {
	e := &entry[V]{hash: hash, next: next, key: key, value: value}
	copy(e.short[:], key)
	return e
}

func (e *entry[V]) is(key []byte) bool {
	if len(e.key) <= shortKey {
		return len(key) == len(e.key) && string(e.short[:len(key)]) == string(key)
	}
	return e.key == string(key)
}

// Get returns the value of the key.
func (t *table[V]) Get(key []byte) (value V, ok bool) {
	s := t.slots.Load()
	if s == nil {
		return value, false
	}
	hash := maphash.Bytes(s.seed, key)
	slot := hash & s.mask
	if s.filter[slot/4].Load()&filterBit(slot, hash) == 0 {
		return value, false
	}
	for e := s.chains[slot].Load(); e != nil; e = e.next {
		if e.hash == hash && e.is(key) {
			return e.value, true
		}
	}
	return value, false
}

// filterBit returns the bit of a key in the filter word of its slot.
func filterBit(slot, hash uint64) uint32 { return 1 << (slot%4*8 + hash>>61) }

// Len returns how many keys there are.
func (t *table[V]) Len() int { return int(t.size.Load()) }

// All yields every key and value, in no order.
func (t *table[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		s := t.slots.Load()
		if s == nil {
			return
		}
		for i := range s.chains {
			for e := s.chains[i].Load(); e != nil; e = e.next {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}

// Put sets the value of the key.
func (t *table[V]) Put(key string, value V) {
	if t.replace(key, value) {
		return
	}
	n := t.Len() + 1
	if s := t.slots.Load(); s == nil || n > len(s.chains) {
		t.resize(max(minSlots, 2*n))
	}
	t.slots.Load().add(key, value)
	t.size.Store(int64(n))
}

// replace replaces the value of an existing key, so that no reader misses the key.
func (t *table[V]) replace(key string, value V) bool {
	s := t.slots.Load()
	if s == nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	chain := &s.chains[hash&s.mask]
	rest, found := without(chain.Load(), key)
	if found {
		chain.Store(newEntry(hash, key, value, rest))
	}
	return found
}

// Delete removes the key, if present.
func (t *table[V]) Delete(key string) {
	s := t.slots.Load()
	if s == nil {
		return
	}
	slot := maphash.String(s.seed, key) & s.mask
	rest, found := without(s.chains[slot].Load(), key)
	if !found {
		return
	}
	s.chains[slot].Store(rest)
	word := s.filter[slot/4].Load() &^ (0xFF << (slot % 4 * 8))
	for e := rest; e != nil; e = e.next {
		word |= filterBit(slot, e.hash)
	}
	s.filter[slot/4].Store(word)
	n := t.Len() - 1
	t.size.Store(int64(n))
	if len(s.chains) > minSlots && n < len(s.chains)/8 {
		t.resize(max(minSlots, 2*n))
	}
}

// without returns a copy of a chain without the key.
func without[V any](e *entry[V], key string) (rest *entry[V], found bool) {
	if e == nil {
		return nil, false
	}
	if e.key == key {
		return e.next, true
	}
	next, found := without(e.next, key)
	if !found {
		return e, false
	}
	return newEntry(e.hash, e.key, e.value, next), true
}

// resize copies everything into at least n slots. Readers continue with the old ones.
func (t *table[V]) resize(n int) {
	size := minSlots
	for size < n {
		size *= 2
	}
	s := &slots[V]{seed: maphash.MakeSeed(), mask: uint64(size - 1), filter: make([]atomic.Uint32, size/4), chains: make([]atomic.Pointer[entry[V]], size)}
	for key, value := range t.All() {
		s.add(key, value)
	}
	t.slots.Store(s)
}

func (s *slots[V]) add(key string, value V) {
	hash := maphash.String(s.seed, key)
	slot := hash & s.mask
	s.chains[slot].Store(newEntry(hash, key, value, s.chains[slot].Load()))
	s.filter[slot/4].Store(s.filter[slot/4].Load() | filterBit(slot, hash))
}
