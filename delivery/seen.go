package delivery

import (
	"bytes"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// A Place is a subscriber's place in the log: a position, or a Ref received from a client. At is
// used if it is set. Begins says that the log began there when the subscriber asked where it
// begins: changes that have left the log since are not reported as a loss.
type Place struct {
	At     change.Position
	Ref    change.Ref
	Begins bool
}

// From returns the position after which the subscriber has seen nothing; for a Ref that is the
// beginning of its time.
func (p Place) From() change.Position {
	if p.At.IsZero() && !p.Ref.IsZero() {
		return change.At(p.Ref.Time())
	}
	return p.At
}

// IsZero reports whether the place is unknown.
func (p Place) IsZero() bool { return p.At.IsZero() && p.Ref.IsZero() }

// A seen filters out events that a subscriber has seen, if its partitions are at different places
// or a place is known only as a Ref. The log is then read from the earliest place. It belongs to
// the owner of the session.
type seen struct {
	owner   bool    // events without a document are handled in partition 0
	rest    *marker // of the partitions that are not in of
	of      map[change.Partition]*marker
	markers []*marker // all, without duplicates
}

// A marker is a place that the log has not passed yet.
type marker struct {
	place Place
	exact bool // the position is known, not only the Ref
	head  [change.HeadSize]byte

	passed bool
	// held are events at the Ref's head before its own event: they were seen if that event follows,
	// and not if the log goes beyond without it.
	held []heldEvent
}

type heldEvent struct {
	event     change.Event
	partition change.Partition
	keyed     bool
}

// newMarker returns a marker for a place.
func newMarker(p Place) *marker {
	if p.At.IsZero() && !p.Ref.IsZero() && p.Ref.Head().Kind == change.KindProgress {
		p.At = change.At(p.Ref.Time()) // before every event of its time
	}
	m := &marker{place: p, exact: !p.At.IsZero() || p.Ref.IsZero()}
	if !m.exact {
		m.head = headOf(p.Ref.Head())
	}
	return m
}

func headOf(h change.Head) (head [change.HeadSize]byte) {
	h.Append(head[:0])
	return head
}

// newSeen returns a seen for a subscriber at rest, and at other places in some partitions; nil if a
// cursor that starts at rest suffices.
func newSeen(rest Place, of map[change.Partition]Place) *seen {
	s := &seen{of: make(map[change.Partition]*marker)}
	known := make(map[string]*marker)
	add := func(p Place) *marker {
		key := p.At.Time.String() + string(p.At.Token)
		if p.At.IsZero() {
			key = string(p.Ref.Append(nil))
		}
		m := known[key]
		if m == nil {
			m = newMarker(p)
			known[key] = m
			s.markers = append(s.markers, m)
		}
		m.place.Begins = m.place.Begins && p.Begins
		return m
	}
	s.rest = add(rest)
	for p, place := range of {
		if m := add(place); m != s.rest {
			s.of[p] = m
		}
	}
	if len(s.markers) == 1 && s.rest.exact {
		return nil
	}
	return s
}

// from returns the position after which the log must be read.
func (s *seen) from() (from change.Position) {
	for i, m := range s.markers {
		if at := m.place.From(); i == 0 {
			from = at
		} else {
			from = change.Earlier(from, at)
		}
	}
	return from
}

func (s *seen) marker(p change.Partition) *marker {
	if m, ok := s.of[p]; ok {
		return m
	}
	return s.rest
}

// where returns the place of a partition when the log has been considered up to a position.
func (s *seen) where(p change.Partition, considered change.Position) Place {
	if m := s.marker(p); !m.passed {
		return m.place
	}
	return Place{At: considered}
}

// beginWith reports whether the partitions that are before a position have asked for the beginning
// of the log.
func (s *seen) beginWith(to change.Position) (begin bool) {
	for _, m := range s.markers {
		switch before := to.After(m.place.From()); {
		case m.passed, before && !m.place.Begins:
			return false
		case before:
			begin = true
		}
	}
	return begin
}

// A verdict is the decision on an event.
type verdict int

const (
	deliver verdict = iota
	skip            // the subscriber has seen it
	hold            // not known yet
)

// look decides on the next event of the log. released are held events that have turned out to be
// new; they precede it.
func (s *seen) look(e *change.Event, p change.Partition, keyed bool) (v verdict, released []heldEvent) {
	at := e.Position()
	head := headOf(at.Head())
	released = s.passed(at, head)
	of := p
	one := keyed
	if !keyed && s.owner {
		of, one = 0, true
	}
	if one {
		v = s.marker(of).verdict(at, head)
	} else { // delivered unless every partition has seen it
		v = skip
		for _, m := range s.markers {
			if w := m.verdict(at, head); w == deliver || v == skip {
				v = w
			}
		}
	}
	if v == hold {
		held := heldEvent{e.Over(bytes.Clone(e.Raw())), p, keyed}
		for _, m := range s.markers {
			if m.verdict(at, head) == hold && (!one || m == s.marker(of)) {
				m.held = append(m.held, held)
			}
		}
	}
	for _, m := range s.markers {
		isHere := m.head == head && m.place.Ref == at.Ref()
		if !m.passed && !m.exact && isHere {
			for _, held := range m.held { // this event and those before it have been seen
				if !change.PrecedesAlways(&held.event, e) {
					released = append(released, held)
				}
			}
			m.passed, m.held = true, nil
		}
	}
	return v, released
}

// verdict decides on an event for a partition at the marker.
func (m *marker) verdict(at change.Position, head [change.HeadSize]byte) verdict {
	switch {
	case m.passed:
		return deliver
	case m.exact, m.head != head, m.place.Ref == at.Ref():
		return skip
	}
	return hold
}

// isBefore reports whether the log passes the marker with a position.
func (m *marker) isBefore(at change.Position, head [change.HeadSize]byte) bool {
	if m.exact {
		return !m.place.At.Has(at)
	}
	return bytes.Compare(head[:], m.head[:]) > 0 || m.head == head && m.place.Ref.IsBetween()
}

// has reports whether it is certain that the subscriber has seen everything of a position, in all
// partitions.
func (s *seen) has(at change.Position) bool {
	head := headOf(at.Head())
	return !slices.ContainsFunc(s.markers, func(m *marker) bool { return m.isBefore(at, head) || m.verdict(at, head) != skip })
}

// passed updates the markers for a position of the log and returns the events to release.
func (s *seen) passed(at change.Position, head [change.HeadSize]byte) (released []heldEvent) {
	for _, m := range s.markers {
		if !m.passed && m.isBefore(at, head) {
			m.passed = true
			released = append(released, m.held...)
			m.held = nil
		}
	}
	slices.SortStableFunc(released, func(a, b heldEvent) int { return a.event.Position().Compare(b.event.Position()) })
	return slices.CompactFunc(released, func(a, b heldEvent) bool { return a.event.Position().Compare(b.event.Position()) == 0 })
}

// reached updates the markers when the log has been considered up to a position, and returns the
// events to release.
func (s *seen) reached(to change.Position) (released []heldEvent) {
	for _, m := range s.markers {
		m.passed = m.passed || m.exact && m.place.At.Compare(to) == 0
	}
	return s.passed(to, headOf(to.Head()))
}

// drained updates the markers when everything up to the time of a position has been considered, and
// reports whether all further events are new. Those right after that time are no later, however
// long the log rests.
func (s *seen) drained(to change.Position) bool {
	for _, m := range s.markers {
		at := m.place.At
		m.passed = m.passed || m.exact && (!at.After(to) || at.IsProgress() && pastOf(at).Compare(to.Time) <= 0)
	}
	return s.done()
}

// done reports whether all further events are new.
func (s *seen) done() bool {
	return !slices.ContainsFunc(s.markers, func(m *marker) bool { return !m.passed })
}

// pastOf returns the latest time whose events come up to a position.
func pastOf(at change.Position) change.Timestamp { return snapshot.Place{At: at}.Past() }
