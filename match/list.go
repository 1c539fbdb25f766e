package match

import (
	"slices"
	"sync/atomic"
)

// A list is a copy-on-write set of values with one writer and any number of readers. The zero list
// is empty and ready for use.
type list[V comparable] struct {
	values atomic.Pointer[[]V]
}

// Values returns the current values; the slice is immutable.
func (l *list[V]) Values() []V {
	if p := l.values.Load(); p != nil {
		return *p
	}
	return nil
}

// Add adds a value. It appends after what readers have seen, so that additions need no copy.
func (l *list[V]) Add(value V) {
	values := append(l.Values(), value)
	l.values.Store(&values)
}

// Remove removes a value, if present.
func (l *list[V]) Remove(value V) {
	values := withoutValue(l.Values(), value)
	l.values.Store(&values)
}

// withoutValue returns a copy of the values without one of them.
func withoutValue[V comparable](values []V, value V) []V {
	i := slices.Index(values, value)
	if i < 0 {
		return values
	}
	rest := make([]V, 0, len(values)-1)
	return append(append(rest, values[:i]...), values[i+1:]...)
}
