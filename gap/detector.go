package gap

import (
	"cmp"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Reason says why a span counts as missed.
type Reason string

// The reasons.
const (
	// HistoryLost: the log no longer reaches back to the position (286, 136, 464, 280 after its one retry, 40576 and 40585 of old
	// servers, or a first entry that is younger).
	HistoryLost Reason = "history_lost"
	// AheadOfServer: the position is younger than the server's own time; the deployment was restored or is another one.
	AheadOfServer Reason = "ahead_of_server"
	// Jump: cluster time jumped where continuity is unproven.
	Jump Reason = "jump"
	// Refused: MongoDB refuses the position again and again although its log reaches back to it.
	Refused Reason = "refused"
	// Poison: MongoDB could not deliver an event because it is too large.
	Poison Reason = "poison"
	// Renamed: another collection was renamed to a watched name; its documents have changed without a change of their own.
	Renamed Reason = "renamed"
)

// A Span is a stretch of the log that was or may have been missed: what stands behind From and before To.
type Span struct {
	From, To change.Position
	Reason   Reason
}

// Length returns the log time that the span covers.
func (s Span) Length() time.Duration { return s.To.Time.Time().Sub(s.From.Time.Time()) }

// Readable reports whether the log, whose oldest entry is of the time first, still has the whole span: reading it again misses
// nothing. Nothing is readable from a log that is behind the position.
func (s Span) Readable(first change.Timestamp) bool {
	return s.Reason != AheadOfServer && first.Compare(s.From.Time) <= 0
}

// A Detector watches one lane's progress. It belongs to one goroutine.
type Detector struct {
	maxGap   time.Duration
	last     change.Position
	accepted change.Position // where a suspected span began that was read again and found empty
}

// NewDetector makes a Detector for a lane that stands at the position. A jump of more than maxGap counts, 5 minutes if that is zero.
func NewDetector(maxGap time.Duration, at change.Position) *Detector {
	return &Detector{maxGap: cmp.Or(maxGap, 5*time.Minute), last: at}
}

// Progress notes that the lane is about to go on to the position. proven says that the log is known to have been read without a
// hole since the last progress. A span means that what revealed it must not be processed: the lane goes back to From and reads
// again; jumped says that there was a jump, which is worth counting even where it is proven to be quiet.
//
// When the same jump shows again after the lane has gone back, the stretch was read twice and is accepted.
func (d *Detector) Progress(to change.Position, proven bool) (span Span, found, jumped bool) {
	from := d.last
	jumped = !from.IsZero() && to.Time.Time().Sub(from.Time.Time()) > d.maxGap
	if jumped && !proven && d.accepted.Compare(from) != 0 {
		d.accepted = from
		return Span{From: from, To: to, Reason: Jump}, true, true
	}
	d.last = change.Later(d.last, to)
	return Span{}, false, jumped
}

// Reached notes that everything up to the position has been taken. Of two equal positions it keeps this one: the other may be an
// event's, which holds the whole reply that it came in.
func (d *Detector) Reached(at change.Position) { d.last = change.Later(at, d.last) }

// Reset notes that the lane goes on from the position, wherever it stood before.
func (d *Detector) Reset(at change.Position) { d.last, d.accepted = at, change.Position{} }
