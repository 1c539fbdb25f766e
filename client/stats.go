package client

import "sync/atomic"

// Stats are counters since New, except QueuedBytes.
type Stats struct {
	Sessions       uint64 // sessions that a node has accepted
	Batches        uint64 // batches handled, including empty ones
	Changes        uint64 // calls of handlers, one for each change and subscription
	Duplicates     uint64 // redelivered changes that were dropped
	Failures       uint64 // failed calls of handlers, and of OnNotice for a loss
	Skipped        uint64 // changes and losses skipped by OnPoison
	Losses         uint64 // Resync and Rewound notices
	NoticesDropped uint64 // Service, Connected and Disconnected notices dropped because OnNotice was too slow
	QueuedBytes    int    // bytes of messages that wait for handlers now
}

type counters struct {
	sessions, batches, changes, duplicates, failures, skipped, losses, noticesDropped atomic.Uint64
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Sessions: s.sessions.Load(), Batches: s.batches.Load(), Changes: s.changes.Load(), Duplicates: s.duplicates.Load(), Failures: s.failures.Load(),
		Skipped: s.skipped.Load(), Losses: s.losses.Load(), NoticesDropped: s.noticesDropped.Load(), QueuedBytes: c.room.bytes(),
	}
}
