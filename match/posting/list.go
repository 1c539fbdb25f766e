package posting

import (
	"slices"
	"sync/atomic"
)

// A List is a set of values. The zero List is empty and ready for use.
type List[V comparable] struct {
	values atomic.Pointer[[]V]
}

// Values returns the values as they are now; the slice is read-only and does not change.
func (l *List[V]) Values() []V {
	if p := l.values.Load(); p != nil {
		return *p
	}
	return nil
}

// Add adds a value. It writes behind what readers have seen, so that many additions cost no copies.
func (l *List[V]) Add(value V) {
	values := append(l.Values(), value)
	l.values.Store(&values)
}

// Remove removes a value, if it is there.
func (l *List[V]) Remove(value V) {
	values := Without(l.Values(), value)
	l.values.Store(&values)
}

// Without returns a copy of the values without one of them.
func Without[V comparable](values []V, value V) []V {
	i := slices.Index(values, value)
	if i < 0 {
		return values
	}
	rest := make([]V, 0, len(values)-1)
	return append(append(rest, values[:i]...), values[i+1:]...)
}
