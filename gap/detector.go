package gap

import (
	"cmp"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Reason says why a stretch counts as missed.
type Reason string

// The reasons.
const (
	// HistoryLost: the log no longer holds the position (errors 286, 136, 464, 280 after one retry,
	// 40576 and 40585 of old servers, or a first entry that is later).
	HistoryLost Reason = "history_lost"
	// AheadOfServer: the position is later than the server's own time; the deployment was restored
	// or is another one.
	AheadOfServer Reason = "ahead_of_server"
	// Jump: cluster time jumped without a proof of continuity.
	Jump Reason = "jump"
	// Refused: MongoDB repeatedly rejects the position although its log holds it.
	Refused Reason = "refused"
	// Poison: MongoDB could not deliver an event because it is too large.
	Poison Reason = "poison"
	// Damaged: a part of the retained log has become unreadable.
	Damaged Reason = "damaged"
	// Forgotten: changes were erased from the retained log on purpose.
	Forgotten Reason = "forgotten"
	// Unread: the stream that moved the position did not read the namespaces, which are read again.
	Unread Reason = "unread"
	// Renamed: another collection was renamed to a watched name; its documents changed without
	// change events.
	Renamed Reason = "renamed"
)

// A Span is a stretch of the log that was or may have been missed: after From and up to To.
type Span struct {
	From, To change.Position
	Reason   Reason
}

// A Detector checks the progress of a reader. It must not be used concurrently.
type Detector struct {
	maxGap   time.Duration
	last     change.Position
	accepted change.Position // the start of a suspected stretch that was read again and found empty
}

// NewDetector returns a Detector for a reader at the position. A jump of more than maxGap is
// suspicious; 0 means 5 minutes.
func NewDetector(maxGap time.Duration, at change.Position) *Detector {
	return &Detector{maxGap: cmp.Or(maxGap, 5*time.Minute), last: at}
}

// Progress checks the progress to a position. proven says that the log was read without a hole
// since the last progress. If found is true, the caller must discard what revealed the span, go
// back to its From and read again. jumped reports a jump even if continuity is proven.
//
// When the same jump is found again after reading again, it is accepted.
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

// Reached records that everything up to the position has been accepted. Of two equal positions it
// keeps the recorded one, because the other may alias a whole reply.
func (d *Detector) Reached(at change.Position) { d.last = change.Later(at, d.last) }

// Reset sets the position, wherever it was before.
func (d *Detector) Reset(at change.Position) { d.last, d.accepted = at, change.Position{} }
