package snapshot

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// Readers that were too late for a page of their scan, or continue a snapshot, share scans, too: an
// identity has at most maxScans of a collection. A further reader waits until one of these comes to
// its place, where the page is cut so that the reader joins, or until fewer are left. So the work
// for many late readers is that of a few.
const (
	maxScans = 2
	// latePatience is how long a scan of late readers of one identity waits for those of them that
	// are not ready. They are slow: if it continued without them as soon as other scans do, each
	// would be alone in the end and have the rest of the collection read for itself. Readers of
	// other identities, and new ones, do not wait longer than elsewhere.
	latePatience = 5 * time.Second
)

// parked are the readers of a collection that wait for a scan, by the _id at which they continue.
// Those of an _id are in the order in which they began to wait.
type parked[T any] map[string][]*Reader[T]

// sooner compares when readers began to wait.
func sooner[T any](r, other *Reader[T]) int { return cmp.Compare(r.ticket, other.ticket) }

// placeKey returns the key of an _id in parked.
func placeKey(b []byte, id change.Value) []byte { return append(append(b, byte(id.Type)), id.Data...) }

// park has a reader wait for a scan that comes to its place.
func (s *Scanner[T]) park(r *Reader[T]) {
	of := s.parked[r.Left.Namespace]
	if of == nil {
		of = make(parked[T])
		s.parked[r.Left.Namespace] = of
	}
	if r.ticket == 0 {
		s.tickets++
		r.ticket = s.tickets
	}
	key := string(placeKey(nil, r.Left.From))
	at, _ := slices.BinarySearchFunc(of[key], r, sooner)
	of[key] = slices.Insert(of[key], at, r)
}

// isServed reports whether the identity of a reader has as many scans of the collection as it may.
func (s *Scanner[T]) isServed(r *Reader[T]) bool {
	scans := 0
	is := func(other *Reader[T]) bool { return other.Identity == r.Identity }
	for _, c := range s.scans {
		if c.namespace == r.Left.Namespace && (slices.ContainsFunc(c.Readers(), is) || slices.ContainsFunc(c.joining, is)) {
			scans++
		}
	}
	return scans >= maxScans
}

// take has the readers that wait at a key, are ready and fit join a scan. It reports whether there
// were any.
func (s *Scanner[T]) take(c *scanning[T], key string) (joins bool) {
	s.unpark(c.namespace, key, func(r *Reader[T]) bool {
		if r.IsOver() {
			return true
		}
		is := s.cfg.Sessions.Ready(r) && c.Fits(r)
		if is {
			c.invite(r)
		}
		joins = joins || is
		return is
	})
	return joins
}

// unpark removes some of the readers that wait at a key.
func (s *Scanner[T]) unpark(ns change.Namespace, key string, some func(*Reader[T]) bool) {
	of, waits := s.parked[ns]
	if !waits {
		return
	}
	readers := slices.DeleteFunc(of[key], some)
	if of[key] = readers; len(readers) == 0 {
		delete(of, key)
	}
	if len(of) == 0 {
		delete(s.parked, ns)
	}
}

// meet has readers join a scan that is about to read the page at their place.
func (s *Scanner[T]) meet(c *scanning[T]) {
	if len(s.parked[c.namespace]) > 0 {
		s.take(c, string(placeKey(nil, c.At())))
	}
}

// cut ends a page that has been read before the first document at which readers wait, so that they
// join the scan there.
func (s *Scanner[T]) cut(c *scanning[T], f *fetch) {
	of := s.parked[c.namespace]
	if len(of) == 0 || len(f.Query.IDs) > 0 {
		return
	}
	var key []byte
	for i, doc := range f.Page.Documents {
		id := change.IDOf(doc)
		key = placeKey(key[:0], id)
		if _, waits := of[string(key)]; !waits || i == 0 {
			continue
		}
		if s.take(c, string(key)) {
			f.Page.Documents = f.Page.Documents[:i]
			f.Page.Next = change.Value{Type: id.Type, Data: bytes.Clone(id.Data)}
			return
		}
	}
}

// reoffer offers the readers that wait for a scan of a collection, because fewer readers have one.
// The one that has waited longest comes first, or one whose document is gone would wait for ever.
// But it lets the one at the earliest place go first once: a scan from there meets all others,
// which else would begin scans of their own if they came in an unlucky order.
func (s *Scanner[T]) reoffer(ns change.Namespace) {
	var waiting []*Reader[T]
	for _, readers := range s.parked[ns] {
		waiting = append(waiting, readers...)
	}
	delete(s.parked, ns)
	slices.SortFunc(waiting, sooner)
	first := s.earliest(waiting)
	for _, r := range waiting {
		if first[r.Identity] == r {
			s.Offer(r)
		}
	}
	for _, r := range waiting {
		if first[r.Identity] != r {
			s.Offer(r)
		}
	}
}

// earliest returns who of those that have waited, the longest first, goes first: for each identity
// that may have another scan the reader at the earliest place, unless the one that has waited
// longest has yielded before. The order of some places is unknown.
func (s *Scanner[T]) earliest(waiting []*Reader[T]) map[string]*Reader[T] {
	first := make(map[string]*Reader[T]) // nil: nobody
	for _, r := range waiting {
		best, known := first[r.Identity]
		switch {
		case r.IsOver():
		case !known && (r.yielded || s.isServed(r)):
			first[r.Identity] = nil
		case known && best == nil || !s.cfg.Sessions.Ready(r):
		case !known:
			first[r.Identity] = r
			r.yielded = true
		default:
			if order, known := ordered(r.Left.From, best.Left.From); known && order < 0 {
				first[r.Identity] = r
			}
		}
	}
	return first
}
