package snapshot

import (
	"slices"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
)

// Left is the remainder of a collection for a reader: from From to the end and, after wrapping
// around, up to Until. The zero values are the beginning and the end.
type Left struct {
	Namespace   change.Namespace
	From, Until change.Value
	Round       bool // it has wrapped around
}

// IsFresh reports whether nothing has been read yet, so that the reader may join anywhere.
func (l Left) IsFresh() bool { return l.From.IsZero() && l.Until.IsZero() && !l.Round }

// A Reader is a participant of a scan.
type Reader[T any] struct {
	Left Left
	Done bool // it is complete
	// Partly says that Who has a part of the page at Left.From already; the rest is owed. It
	// belongs to Who.
	Partly bool
	Who    T
	Gone   atomic.Bool // it wants nothing more
}

// A Scan reads a collection cyclically for readers. It must not be used concurrently.
type Scan[T any] struct {
	at      change.Value // where the next page begins
	readers []*Reader[T] // in the order in which they become complete
}

// Join adds a reader before the next page. It returns false if the reader has begun at another
// place.
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

// Leave removes a reader.
func (s *Scan[T]) Leave(r *Reader[T]) {
	s.readers = slices.DeleteFunc(s.readers, func(other *Reader[T]) bool { return other == r })
}

// Readers returns the readers.
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

// Passed records that a page was delivered to the readers. until is the value that Next returned,
// next the page's Next. Complete readers leave the scan.
func (s *Scan[T]) Passed(until, next change.Value) {
	ended := next.IsZero() && until.IsZero() // of the collection
	if s.at = next; next.IsZero() {
		s.at = until
	}
	s.readers = slices.DeleteFunc(s.readers, func(r *Reader[T]) bool {
		switch {
		case next.IsZero() && !ended: // the end of readers that have wrapped around
			r.Done = r.Left.Round && r.Left.Until.Equal(until)
		case ended && r.Left.Until.IsZero():
			r.Done = true
		case ended:
			r.Left.Round = true
		}
		r.Left.From = s.at
		return r.Done
	})
}
