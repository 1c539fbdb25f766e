package checkpoint

import (
	"time"

	"github.com/mongostream/streamer/snapshot"
)

const (
	// HistoryLength is the number of history entries of a checkpoint.
	HistoryLength = 32
	// historyEvery is the least interval between entries of routine checkpoints.
	historyEvery = time.Minute
)

// A Trail is stored with a checkpoint and describes its history: the number of entries and the time
// of the last one. It decides, within the transaction that writes a checkpoint, whether the store
// adds an entry and in which slot.
type Trail struct {
	Entries uint64
	Last    time.Time
}

// Next returns the trail for c, which follows the checkpoint with trail t, and whether c is a
// history entry: every significant checkpoint is, and one routine checkpoint per minute by its own
// clock.
func (t Trail) Next(c Checkpoint) (next Trail, entry bool) {
	if c.Reason.routine() && c.At.Sub(t.Last).Abs() < historyEvery {
		return t, false
	}
	return Trail{Entries: t.Entries + 1, Last: c.At.UTC()}, true
}

// Slot returns the slot of the newest entry among the HistoryLength slots.
func (t Trail) Slot() int { return int((t.Entries + HistoryLength - 1) % HistoryLength) }

// Entry returns the history entry of the checkpoint: its earliest position, without single
// partitions and losses. A shared one keeps the beginnings of unfinished snapshots: the documents
// of a partition whose checkpoint is repaired come again.
func (c Checkpoint) Entry() Checkpoint {
	c.Position = c.Earliest()
	c.Positions = nil
	c.Losses = nil
	all := c.Snapshots
	c.Snapshots = nil
	for _, p := range snapshot.Together(all) {
		if c.Shared && !p.Done {
			c.Snapshots = append(c.Snapshots, owed(p, p.Some))
		}
	}
	return c
}
