package streamer

import (
	"bytes"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Place is where a subscriber is in the log: a position, or a Ref as it has left the node. At is used where it is set.
type Place struct {
	At  change.Position
	Ref change.Ref
}

// From returns the position after which everything is that the subscriber has not seen; of a Ref that is where its time begins.
func (p Place) From() change.Position {
	if p.At.IsZero() && !p.Ref.IsZero() {
		return change.At(p.Ref.Time())
	}
	return p.At
}

// IsZero reports whether nothing is known.
func (p Place) IsZero() bool { return p.At.IsZero() && p.Ref.IsZero() }

// A seen leaves out what a subscriber has seen, where its partitions are at different places or where it is known by a Ref only. The log is
// read again from the earliest of its places on. It belongs to whoever owns the session.
type seen struct {
	owner   bool    // an event of no document has come with partition 0
	rest    *marker // of the partitions that are not in of
	of      map[change.Partition]*marker
	markers []*marker // all of them, each once
}

// A marker is a place that the log has yet to pass.
type marker struct {
	place Place
	exact bool // the position is known; otherwise only the Ref is
	head  [change.HeadSize]byte

	passed bool
	// held are the events at the Ref's head before its own event: they were seen if that one comes, and not if the log goes on without it.
	held []heldEvent
}

type heldEvent struct {
	event     change.Event
	partition change.Partition
	keyed     bool
}

// newMarker makes a marker of a place.
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

// newSeen makes a seen of a subscriber that is at rest, and elsewhere in some partitions; nil where a cursor that starts at rest's position
// needs no help.
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
			known[key], s.markers = m, append(s.markers, m)
		}
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

// from returns the position after which the log is to be read.
func (s *seen) from() (from change.Position) {
	for i, m := range s.markers {
		if at := m.place.From(); i == 0 || from.After(at) {
			from = at
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

// where returns where a partition is while the log has been considered up to a position.
func (s *seen) where(p change.Partition, considered change.Position) Place {
	if m := s.marker(p); !m.passed {
		return m.place
	}
	return Place{At: considered}
}

// A verdict says what to do with an event.
type verdict int

const (
	deliver verdict = iota
	skip            // the subscriber has seen it
	hold            // not known yet
)

// look considers the next event of the log. released are held events that turn out not to have been seen; they come before it.
func (s *seen) look(e *change.Event, p change.Partition, keyed bool) (v verdict, released []heldEvent) {
	at := e.Position()
	head := headOf(at.Head())
	released = s.passed(at, head)
	of, one := p, keyed
	if !keyed && s.owner {
		of, one = 0, true
	}
	if one {
		v = s.marker(of).verdict(at, head)
	} else { // delivered where one partition has not seen it
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
		if !m.passed && !m.exact && m.head == head && m.place.Ref == at.Ref() {
			m.passed, m.held = true, nil // this event and those held before it have been seen
		}
	}
	return v, released
}

// verdict says what a partition at the marker does with an event.
func (m *marker) verdict(at change.Position, head [change.HeadSize]byte) verdict {
	switch {
	case m.passed:
		return deliver
	case m.exact, m.head != head, m.place.Ref == at.Ref():
		return skip
	}
	return hold
}

// passed notes the markers that a position of the log is after, and returns what they have held.
func (s *seen) passed(at change.Position, head [change.HeadSize]byte) (released []heldEvent) {
	for _, m := range s.markers {
		switch {
		case m.passed:
		case m.exact:
			m.passed = at.After(m.place.At)
		case bytes.Compare(head[:], m.head[:]) > 0, m.head == head && m.place.Ref.IsBetween():
			m.passed, released, m.held = true, append(released, m.held...), nil
		}
	}
	slices.SortStableFunc(released, func(a, b heldEvent) int { return a.event.Position().Compare(b.event.Position()) })
	return slices.CompactFunc(released, func(a, b heldEvent) bool { return a.event.Position().Compare(b.event.Position()) == 0 })
}

// reached notes that the log has been considered up to a position, and returns what turns out not to have been seen.
func (s *seen) reached(to change.Position) (released []heldEvent) {
	for _, m := range s.markers {
		m.passed = m.passed || m.exact && m.place.At.Compare(to) == 0
	}
	return s.passed(to, headOf(to.Head()))
}

// done reports whether everything that comes now is new to the subscriber.
func (s *seen) done() bool {
	return !slices.ContainsFunc(s.markers, func(m *marker) bool { return !m.passed })
}
