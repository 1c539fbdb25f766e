package oplog

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// A search finds the earliest place after a lost position that the log still holds, by repeated
// attempts. The log's first entry is not sufficient: older servers reject its own time, and it may
// be truncated before a stream is opened there. So each attempt begins at the newest known first
// entry, plus a growing margin. If that fails, or the first entry is unknown, the search bisects.
type search struct {
	low, first, end change.Timestamp // earlier times are rejected or irrelevant
	refused         change.Timestamp // the latest rejected time
	try             int
	halving         bool
	high            change.Timestamp // bisecting: the earliest time that the log holds
	last            bool             // bisecting: only the end is left
}

// newSearch returns a search after from. first is the time of the log's first entry and end a time
// that can be read in any case; zero if unknown.
func newSearch(from, first, end change.Timestamp) *search {
	return &search{low: from, first: first, end: end}
}

// margins are the distances of the attempts from the log's first entry, in increments and seconds.
//
//nolint:gochecknoglobals // a constant table
var margins = []change.Timestamp{{}, {I: 1}, {I: 16}, {I: 256}, {I: 4096}, {T: 1}, {T: 4}, {T: 16}, {T: 64}, {T: 256}, {T: 1024}, {T: 4096}}

// mostTries bounds the attempts: bisecting a day takes 17 attempts to reach seconds.
const mostTries = 40

// next returns the time to try; ok is false when nothing is left to try.
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
		if at.I += m.I; at.I < m.I { // overflow
			at.T++
			at.I = 0
		}
		if s.end.IsZero() || at.Compare(s.end) <= 0 { // the end may be within the margin
			return at, true
		}
	}
	s.halving = true
	s.low = latest(s.low, s.refused)
	return s.half()
}

// half returns the middle of the remaining stretch or, if nothing was held, its end.
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

// between returns a time between two others, in seconds, or in increments within one second. There
// is none between adjacent times.
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

// refuse records that the log does not hold the time. first is the time of its first entry now,
// zero if unknown.
func (s *search) refuse(at, first change.Timestamp) {
	s.first = latest(s.first, first)
	if s.halving {
		s.low = latest(s.low, latest(at, s.first))
	}
	s.refused = latest(s.refused, at)
}

// hold records that the log holds the time, and reports whether the search is complete.
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
