package checkpoint

import (
	"context"
	"time"

	"github.com/mongostream/streamer/change"
)

const (
	// HistoryLength is how many marks of a partition are kept.
	HistoryLength = 32
	// historyEvery is how often a mark without a meaning of its own is kept, at most.
	historyEvery = time.Minute
)

// A Trail stands beside a mark and tells of its history: how many entries there have been, and when the last one was made. With it
// a store knows in the transaction that writes a mark, without reading anything more, whether and where the mark is an entry too.
type Trail struct {
	Entries uint64
	Last    time.Time
}

// Next returns the trail that stands beside the mark m, which follows the one that t stood beside, and whether m is an entry of the
// history: every one that is not routine is, and of the others one a minute, by their own clocks.
func (t Trail) Next(m Mark) (next Trail, entry bool) {
	if m.Reason.routine() && m.At.Sub(t.Last).Abs() < historyEvery {
		return t, false
	}
	return Trail{Entries: t.Entries + 1, Last: m.At.UTC()}, true
}

// Slot is where the newest entry stands among the HistoryLength that are kept.
func (t Trail) Slot() int { return int((t.Entries + HistoryLength - 1) % HistoryLength) }

// A HistoryKeeper keeps the last marks of each partition.
type HistoryKeeper interface {
	// History returns the last marks of a partition, newest first: all that were not routine, one a minute of the others, and at
	// most HistoryLength. With an error that says which entries cannot be read, it returns the others.
	History(ctx context.Context, p change.Partition) ([]Mark, error)
}
