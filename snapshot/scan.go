package snapshot

import (
	"slices"

	"github.com/mongostream/streamer/change"
)

// Left is what a reader has yet to get of a collection: from From on, and when it has passed the end up to Until. The zero values are the
// beginning and the end.
type Left struct {
	Namespace   change.Namespace
	From, Until change.Value
	Round       bool // it has passed the end, and begun again
}

// IsFresh reports whether nothing has been read yet, so that the reader may join anywhere.
func (l Left) IsFresh() bool { return l.From.IsZero() && l.Until.IsZero() && !l.Round }

// A Reader takes part in a scan.
type Reader[T any] struct {
	Left Left
	Done bool // it has everything
	Who  T
}

// A Scan goes round a collection for readers. It is for one goroutine.
type Scan[T any] struct {
	at      change.Value // where the next page begins
	readers []*Reader[T] // in the order in which the scan comes to where they end
}

// Join adds a reader to the scan before its next page. It is false where the reader has begun, and goes on somewhere else.
func (s *Scan[T]) Join(r *Reader[T]) bool {
	switch {
	case len(s.readers) == 0:
		s.at = r.Left.From
	case !r.Left.IsFresh():
		return false
	default:
		r.Left.From, r.Left.Until = s.at, s.at
	}
	s.readers = append(s.readers, r)
	return true
}

// Leave takes a reader out.
func (s *Scan[T]) Leave(r *Reader[T]) {
	s.readers = slices.DeleteFunc(s.readers, func(other *Reader[T]) bool { return other == r })
}

// Readers returns those that take part.
func (s *Scan[T]) Readers() []*Reader[T] { return s.readers }

// Next returns the bounds of the next page.
func (s *Scan[T]) Next() (from, until change.Value) {
	for _, r := range s.readers {
		if r.Left.Round {
			return s.at, r.Left.Until
		}
	}
	return s.at, until
}

// Passed notes that a page was read and given to the readers. until is what Next has returned, next the page's Next. Those that have everything
// leave the scan.
func (s *Scan[T]) Passed(until, next change.Value) {
	ended := next.IsZero() && until.IsZero() // of the collection
	if s.at = next; next.IsZero() {
		s.at = until
	}
	s.readers = slices.DeleteFunc(s.readers, func(r *Reader[T]) bool {
		switch {
		case next.IsZero() && !ended: // where those end that have gone round
			r.Done = r.Left.Round && same(r.Left.Until, until)
		case ended && r.Left.Until.IsZero():
			r.Done = true
		case ended:
			r.Left.Round = true
		}
		r.Left.From = s.at
		return r.Done
	})
}

func same(a, b change.Value) bool { return a.Type == b.Type && string(a.Data) == string(b.Data) }
