package delivery

import "github.com/mongostream/streamer/change"

// noteWhole notes what subscriptions whose documents are being read know by an event: they were
// sent the document, or that it has left.
func (s *stream) noteWhole(e *change.Event, subscriptions []*Subscription) {
	if !s.reads.Load() || e.Key() == nil {
		return
	}
	whole := e.Op() == change.OpUpdate && e.Lookup("fullDocument").Document() != nil
	for _, sub := range subscriptions {
		s.buf = appendKey(s.buf[:0], e.Namespace(), e.ID())
		_, is := sub.ahead[string(s.buf)]
		wants := whole && !is && sub.seesAll()
		switch {
		case wants && s.remembers(aheadSize(s.buf)):
			if sub.ahead == nil {
				sub.ahead = make(aheads)
			}
			sub.ahead[string(s.buf)] = struct{}{}
		case is && !whole:
			s.remembers(-aheadSize(s.buf))
			delete(sub.ahead, string(s.buf))
		}
	}
}

// aheadSize returns an estimate of the memory that a document takes.
func aheadSize[K []byte | string](key K) int { return 64 + len(key) }

// seesAll reports whether the operations of a subscription hide no change of a document.
func (sub *Subscription) seesAll() bool {
	for _, op := range []change.Op{change.OpInsert, change.OpUpdate, change.OpReplace, change.OpDelete} {
		if !sub.Program.Admits(op) {
			return false
		}
	}
	return true
}

// isAhead reports whether a subscription was sent a document that is no older than one of a page.
func (sub *Subscription) isAhead(ns change.Namespace, id change.Value) bool {
	if len(sub.ahead) == 0 {
		return false
	}
	s := sub.stream
	s.buf = appendKey(s.buf[:0], ns, id)
	_, is := sub.ahead[string(s.buf)]
	return is
}

// forgetAhead forgets the sent documents: at the start of a snapshot, which sends everything again,
// at its end, and after a possible loss.
func (sub *Subscription) forgetAhead() {
	for key := range sub.ahead {
		sub.stream.remembers(-aheadSize(key))
	}
	sub.ahead = nil
}

func appendKey(b []byte, ns change.Namespace, id change.Value) []byte {
	b = append(append(append(b, ns.DB...), 0), ns.Coll...)
	return change.AppendCanonical(append(b, 0), id)
}
