package snapshot

import (
	"cmp"
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
	// Identity is whose its session is, for turns; Ended is closed when that has ended.
	Identity string
	Ended    <-chan struct{}

	ticket  uint64 // in the order in which readers began to wait for a scan, from 1; 0 once one has it
	yielded bool   // it has let another one begin a scan first
}

// IsOver reports whether the reader wants no more pages.
func (r *Reader[T]) IsOver() bool {
	select {
	case <-r.Ended:
		return true
	default:
		return r.Gone.Load()
	}
}

// A Scan reads a collection cyclically for readers. It must not be used concurrently.
type Scan[T any] struct {
	at      change.Value // where the next page begins
	readers []*Reader[T] // in the order in which they become complete
}

// Join adds a reader before the next page. It returns false if the reader has begun and its
// remainder begins elsewhere, or if it is unknown which other readers become complete before it.
func (s *Scan[T]) Join(r *Reader[T]) bool {
	last := len(s.readers)
	switch {
	case last == 0:
		s.at = r.Left.From
	case r.Left.IsFresh():
		r.Left.From, r.Left.Until = s.at, s.at
	case !r.Left.From.Equal(s.at):
		return false
	default:
		var known bool
		if last, known = s.place(r); !known {
			return false
		}
	}
	s.readers = slices.Insert(s.readers, last, r)
	return true
}

// Fits reports whether a reader could join if the next page began at its place: it is known which
// other readers become complete before it.
func (s *Scan[T]) Fits(r *Reader[T]) bool {
	if r.Left.IsFresh() {
		return true
	}
	_, known := s.place(r)
	return known
}

// At returns where the next page begins.
func (s *Scan[T]) At() change.Value { return s.at }

// place returns where a reader belongs in the order in which readers become complete.
func (s *Scan[T]) place(r *Reader[T]) (at int, known bool) {
	for ; at < len(s.readers); at++ {
		switch order, known := r.Left.ends(s.readers[at].Left); {
		case !known:
			return 0, false
		case order <= 0:
			return at, true
		}
	}
	return at, true
}

// ends compares where two readers at the same place become complete, if that is known.
func (l Left) ends(m Left) (order int, known bool) {
	if lap, other := l.lap(), m.lap(); lap != other {
		return cmp.Compare(lap, other), true
	}
	if l.Until.Equal(m.Until) {
		return 0, true
	}
	return ordered(l.Until, m.Until)
}

// lap returns in which lap the reader becomes complete, counted from the present one: within it, at
// its end, or in the next one.
func (l Left) lap() int {
	switch {
	case l.Round:
		return 0
	case l.Until.IsZero():
		return 1
	default:
		return 2
	}
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
