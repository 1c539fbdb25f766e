package delivery

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
type parked map[string][]parkedReader

type parkedReader struct {
	*reader

	ticket uint64 // in the order in which readers began to wait, from 1; it is kept until a scan has the reader
}

// sooner compares when readers began to wait.
func (r parkedReader) sooner(other parkedReader) int { return cmp.Compare(r.ticket, other.ticket) }

// isOver reports whether a reader wants no more pages.
func isOver(r *reader) bool { return r.Gone.Load() || r.Who.session.Ended() }

// placeKey returns the key of an _id in parked.
func placeKey(b []byte, id change.Value) []byte { return append(append(b, byte(id.Type)), id.Data...) }

// park has a reader wait for a scan that comes to its place.
func (l *loop) park(r parkedReader) {
	of := l.parked[r.Left.Namespace]
	if of == nil {
		of = make(parked)
		l.parked[r.Left.Namespace] = of
	}
	if r.ticket == 0 {
		l.tickets++
		r.ticket = l.tickets
	}
	key := string(placeKey(nil, r.Left.From))
	at, _ := slices.BinarySearchFunc(of[key], r, parkedReader.sooner)
	of[key] = slices.Insert(of[key], at, r)
}

// isServed reports whether the identity of a reader has as many scans of the collection as it may.
func (l *loop) isServed(r *reader) bool {
	scans, identity := 0, r.Who.session.cfg.Identity
	for _, c := range l.scans {
		is := func(other *reader) bool { return other.Who.session.cfg.Identity == identity }
		joins := func(other parkedReader) bool { return is(other.reader) }
		if c.namespace == r.Left.Namespace && (slices.ContainsFunc(c.Readers(), is) || slices.ContainsFunc(c.joining, joins)) {
			scans++
		}
	}
	return scans >= maxScans
}

// take has the readers that wait at a key, are ready and fit join a scan. It reports whether there
// were any.
func (l *loop) take(c *scan, key string) (joins bool) {
	l.unpark(c.namespace, key, func(r parkedReader) bool {
		if isOver(r.reader) {
			return true
		}
		is := l.isReady(r.reader) && c.Fits(r.reader)
		if is {
			c.invite(r)
		}
		joins = joins || is
		return is
	})
	return joins
}

// unpark removes some of the readers that wait at a key.
func (l *loop) unpark(ns change.Namespace, key string, some func(parkedReader) bool) {
	of, waits := l.parked[ns]
	if !waits {
		return
	}
	readers := slices.DeleteFunc(of[key], some)
	if of[key] = readers; len(readers) == 0 {
		delete(of, key)
	}
	if len(of) == 0 {
		delete(l.parked, ns)
	}
}

// meet has readers join a scan that is about to read the page at their place.
func (l *loop) meet(c *scan) {
	if len(l.parked[c.namespace]) > 0 {
		l.take(c, string(placeKey(nil, c.At())))
	}
}

// cut ends a page that has been read before the first document at which readers wait, so that they
// join the scan there.
func (l *loop) cut(c *scan, f *fetch) {
	of := l.parked[c.namespace]
	if len(of) == 0 || len(f.query.IDs) > 0 {
		return
	}
	var key []byte
	for i, doc := range f.read.Documents {
		id := change.IDOf(doc)
		key = placeKey(key[:0], id)
		if _, waits := of[string(key)]; !waits || i == 0 {
			continue
		}
		if l.take(c, string(key)) {
			f.read.Documents, f.read.Next = f.read.Documents[:i], change.Value{Type: id.Type, Data: bytes.Clone(id.Data)}
			return
		}
	}
}

// reoffer offers the readers that wait for a scan of a collection, because fewer readers have one.
// The one that has waited longest comes first, or one whose document is gone would wait for ever.
func (l *loop) reoffer(ns change.Namespace) {
	var waiting []parkedReader
	for _, readers := range l.parked[ns] {
		waiting = append(waiting, readers...)
	}
	delete(l.parked, ns)
	slices.SortFunc(waiting, parkedReader.sooner)
	for _, r := range waiting {
		l.find(r)
	}
}

// forgetParked forgets the readers that want no more pages.
func (l *loop) forgetParked() {
	for ns, of := range l.parked {
		for key := range of {
			l.unpark(ns, key, func(r parkedReader) bool { return isOver(r.reader) })
		}
	}
}
