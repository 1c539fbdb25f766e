package snapshot

import "github.com/mongostream/streamer/change"

// A Place is how far the log has been considered.
type Place struct {
	// At is the position up to which all events have been considered.
	At change.Position
	// Drained says that the log had nothing more there: no event of its time follows.
	Drained bool
}

// Past returns the latest time whose events may have been considered: a page that is read there
// includes all changes up to the place.
func (p Place) Past() change.Timestamp {
	if !p.Drained && p.At.IsProgress() && !p.At.Time.IsZero() { // before every event of its time
		return p.At.Time.Prev()
	}
	return p.At.Time
}

// IsPast reports whether all events up to a time have been considered.
func (p Place) IsPast(t change.Timestamp) bool {
	return t.Compare(p.At.Time) < 0 || t == p.At.Time && (p.Drained || p.At.IsProgress())
}
