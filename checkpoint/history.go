package checkpoint

import "time"

const (
	// HistoryLength is how many entries are kept of a checkpoint.
	HistoryLength = 32
	// historyEvery is how often a checkpoint without a meaning of its own is kept, at most.
	historyEvery = time.Minute
)

// A Trail stands beside a checkpoint and tells of its history: how many entries there have been, and when the last one was made. With it
// a store knows in the transaction that writes a checkpoint, without reading anything more, whether and where it is an entry too.
type Trail struct {
	Entries uint64
	Last    time.Time
}

// Next returns the trail that stands beside c, which follows the checkpoint that t stood beside, and whether c is an entry of the
// history: every one that is not routine is, and of the others one a minute, by their own clocks.
func (t Trail) Next(c Checkpoint) (next Trail, entry bool) {
	if c.Reason.routine() && c.At.Sub(t.Last).Abs() < historyEvery {
		return t, false
	}
	return Trail{Entries: t.Entries + 1, Last: c.At.UTC()}, true
}

// Slot is where the newest entry stands among the HistoryLength that are kept.
func (t Trail) Slot() int { return int((t.Entries + HistoryLength - 1) % HistoryLength) }

// Entry returns the checkpoint as its history keeps it: where it is earliest, without the single partitions and snapshots.
func (c Checkpoint) Entry() Checkpoint {
	c.Position, c.Positions, c.Snapshots = c.Earliest(), nil, nil
	return c
}
