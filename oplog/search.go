package oplog

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// A search looks for the earliest place after a lost position that the log still holds, one try after the other. Looking at the log's first
// entry does not tell it: older servers refuse the time of that entry itself, and it may be truncated before a stream is opened there. So
// each try begins at the newest first entry known, and a bit later than the one before. Where that finds nothing, or the first entry is
// unknown, the search halves the stretch in which the place must be.
type search struct {
	low, first, end change.Timestamp // low: what is earlier is refused, or of no interest
	refused         change.Timestamp // the latest time that was
	try             int
	halving         bool
	high            change.Timestamp // halving: the earliest time that the log was found to hold
	last            bool             // halving: only the end is left
}

// newSearch makes a search after the time from. first is the time of the log's first entry and end that at which the log can be read
// anyway, each zero where it is unknown.
func newSearch(from, first, end change.Timestamp) *search {
	return &search{low: from, first: first, end: end}
}

// margins are how much later than the log's first entry the tries begin, in increments and seconds: some operations, then more and more of
// the log.
//
//nolint:gochecknoglobals // a constant table
var margins = []change.Timestamp{{}, {I: 1}, {I: 16}, {I: 256}, {I: 4096}, {T: 1}, {T: 4}, {T: 16}, {T: 64}, {T: 256}, {T: 1024}, {T: 4096}}

// mostTries bounds the tries: a day is seconds after 17 halves.
const mostTries = 40

// next returns the time at which a stream is to be opened next; ok is false when nothing is left to try.
func (s *search) next() (at change.Timestamp, ok bool) {
	switch {
	case s.halving:
		return s.half()
	case s.first.IsZero():
		s.halving = true
		return s.low, true
	case s.try < len(margins):
		at = latest(s.low, s.first)
		m := margins[s.try]
		s.try++
		at.T += m.T
		if at.I += m.I; at.I < m.I { // no second has so many
			at.T, at.I = at.T+1, 0
		}
		if s.end.IsZero() || at.Compare(s.end) <= 0 { // what can be read anyway may begin within that time
			return at, true
		}
	}
	s.halving, s.low = true, latest(s.low, s.refused)
	return s.half()
}

// half returns the middle of the stretch between what was refused and what was held, and at last its end, if nothing before was held.
func (s *search) half() (at change.Timestamp, ok bool) {
	s.try++
	high := s.high
	if high.IsZero() {
		high = s.end
	}
	at, ok = between(s.low, high)
	if ok = ok && s.try <= mostTries; !ok && s.high.IsZero() && !s.last {
		s.last = true
		return s.end, !s.end.IsZero() && s.end.Compare(s.low) > 0
	}
	return at, ok
}

// between returns a time in the middle of two others: of seconds, and only within one of increments. There is none where they are next to
// each other.
func between(low, high change.Timestamp) (at change.Timestamp, ok bool) {
	switch seconds := high.Time().Sub(low.Time()); {
	case high.IsZero(), seconds < 0:
		return at, false
	case seconds > time.Second:
		at = change.Timestamp{T: low.T + uint32(seconds/time.Second/2)}
	case seconds == time.Second:
		at = change.Timestamp{T: high.T}
	default:
		at = change.Timestamp{T: high.T, I: low.I + (high.I-low.I)/2}
	}
	return at, at.Compare(low) > 0 && at.Compare(high) < 0
}

// refuse notes that the log does not hold the time. first is that of its first entry now, zero where it is unknown.
func (s *search) refuse(at, first change.Timestamp) {
	s.first = latest(s.first, first)
	if s.halving {
		s.low = latest(s.low, latest(at, s.first))
	}
	s.refused = latest(s.refused, at)
}

// hold notes that the log holds the time, and reports whether the search is over.
func (s *search) hold(at change.Timestamp) bool {
	s.high = at
	return !s.halving || at.Compare(s.low) == 0
}

func latest(a, b change.Timestamp) change.Timestamp {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}
