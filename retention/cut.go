package retention

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// limits say when a segment ends.
type limits struct {
	interval time.Duration // since its first entry
	size     int64         // bytes of changes
	idle     time.Duration // log time without an entry after which an empty one is written
	patience time.Duration // a loss waits that long for a writer that knows better
}

// overlong is how much larger than wanted a segment may be while all its changes have one time.
const overlong = 4

// limitsFor returns the limits for an oplog of a length, zero if that is unknown.
func limitsFor(interval time.Duration, size int64, window time.Duration, shared bool) limits {
	l := limits{interval: interval, size: size, idle: time.Hour}
	if window > 0 {
		l.interval = min(l.interval, max(window/8, time.Second))
		l.idle = min(l.idle, max(window/4, time.Second))
	}
	if shared {
		l.patience = 2 * takeOver * l.interval
	}
	return l
}

// takeOver is after how many intervals without a segment another node takes over.
const takeOver = 3

// due reports whether a draft that has entries since begun, and the last loss at lost, is to end
// where the log allows it.
func (l limits) due(d *draft, begun, lost, now time.Time) bool {
	if !lost.IsZero() && now.Sub(lost) < l.patience {
		return false
	}
	return !d.empty() && (int64(d.raw) >= l.size || now.Sub(begun) >= l.interval)
}

// full reports whether a draft must end, even within a time.
func (l limits) full(d *draft) bool { return d.raw >= overlong*l.size }

// quiet reports whether the log has moved on so far without an entry that an empty segment is due.
func (l limits) quiet(from, to change.Timestamp) bool {
	return to.Time().Sub(from.Time()) >= l.idle
}
