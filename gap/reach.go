package gap

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// A Reach is how far MongoDB's log goes, as the server tells it.
type Reach struct {
	// First is the time of the oldest entry, zero where it cannot be known.
	First change.Timestamp
	// Last is the time of the last operation, Majority of the last one that a majority has; zero where the server does not tell.
	Last, Majority change.Timestamp
	// Slack is how far Last may lie behind what streams have told, because different servers answer.
	Slack time.Duration
}

// Ahead reports whether the position is younger than the deployment's own time: it is of a log that is no more. Only the seconds
// count, because the next operation's time may have been told before it happens.
func (r Reach) Ahead(p change.Position) bool { return p.Time.Time().Sub(r.Last.Time()) > r.Slack }

// HeadRoom is how near a position is to being lost: the log time between the log's oldest entry and the position.
func (r Reach) HeadRoom(p change.Position) (room time.Duration, ok bool) {
	if r.First.IsZero() || p.IsZero() {
		return 0, false
	}
	return p.Time.Time().Sub(r.First.Time()), true
}

// Length is the log time that the log covers, zero where it cannot be known.
func (r Reach) Length() time.Duration {
	if r.First.IsZero() {
		return 0
	}
	return max(0, r.Last.Time().Sub(r.First.Time()))
}
