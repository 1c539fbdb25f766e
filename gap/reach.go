package gap

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// A Reach is the extent of MongoDB's log, as reported by the server.
type Reach struct {
	// First is the time of the oldest entry, zero if unknown.
	First change.Timestamp
	// Retained is the time from which on changes can be read although they may have left the oplog,
	// zero if that is from the oldest entry on.
	Retained change.Timestamp
	// Last is the time of the last operation, Majority of the last majority-committed one; zero if
	// unknown.
	Last, Majority change.Timestamp
	// Growing says that the log has not reached its size yet, so that nothing leaves it. It is
	// false where that is unknown.
	Growing bool
	// Spare is by how much log time the log from before the oplog can grow before anything leaves
	// it.
	Spare time.Duration
	// Slack is how far Last may lag the positions of streams, because different servers answer.
	Slack time.Duration
}

// Begins returns the time from which on changes can be read, zero if unknown.
func (r Reach) Begins() change.Timestamp {
	if !r.Retained.IsZero() && (r.First.IsZero() || r.Retained.Compare(r.First) < 0) {
		return r.Retained
	}
	return r.First
}

// Ahead reports whether the position is later than the deployment's own time. It compares seconds,
// because a stream may report the next operation's time in advance.
func (r Reach) Ahead(p change.Position) bool { return p.Time.Time().Sub(r.Last.Time()) > r.Slack }

// idle is how much an idle deployment may lag the clocks: it writes a no-op every 10 s.
const idle = 15 * time.Second

// At returns the cluster time of a time by the clock. One that an idle deployment has not reached
// yet is its present.
func (r Reach) At(t time.Time) change.Timestamp {
	at := change.Timestamp{T: uint32(t.Unix()), I: 1}
	if ahead := at.Time().Sub(r.Last.Time()); !r.Last.IsZero() && ahead > 0 && ahead <= idle {
		return r.Last.Next()
	}
	return at
}

// HeadRoom returns the log time until the position leaves the log, which is that from its beginning
// to it and by which the log can still grow; below zero it has left. ok is false where that is
// unknown, and while nothing leaves the log.
func (r Reach) HeadRoom(p change.Position) (room time.Duration, ok bool) {
	begins := r.Begins()
	if begins.IsZero() || p.IsZero() {
		return 0, false
	}
	if room = p.Time.Time().Sub(begins.Time()); room < 0 {
		return room, true
	}
	return room + r.Spare, !r.Growing
}

// Length returns the log time that the log covers, zero if unknown.
func (r Reach) Length() time.Duration {
	if r.First.IsZero() {
		return 0
	}
	return max(0, r.Last.Time().Sub(r.First.Time()))
}
