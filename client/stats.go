package client

import "sync/atomic"

// Stats count what a client has done since it was made.
type Stats struct {
	Sessions       uint64 // that a node has welcomed
	Batches        uint64 // handled, empty ones too
	Changes        uint64 // handed to handlers, once for each subscription
	Duplicates     uint64 // changes dropped because their partition had passed their position
	Failures       uint64 // of handlers, and of OnNotice with a loss
	Skipped        uint64 // poison that OnPoison skipped
	Losses         uint64 // Resync and Rewound
	NoticesDropped uint64 // that OnNotice was too slow for
	QueuedBytes    int    // of messages that wait for their handlers, now
}

type counters struct {
	sessions, batches, changes, duplicates, failures, skipped, losses, noticesDropped atomic.Uint64
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Sessions: s.sessions.Load(), Batches: s.batches.Load(), Changes: s.changes.Load(), Duplicates: s.duplicates.Load(), Failures: s.failures.Load(),
		Skipped: s.skipped.Load(), Losses: s.losses.Load(), NoticesDropped: s.noticesDropped.Load(), QueuedBytes: c.room.bytes(),
	}
}
