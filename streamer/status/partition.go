package status

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/lane/figure"
	"github.com/mongostream/streamer/streamer/survey"
)

// A Partition is how one partition of a node does.
type Partition struct {
	Partition change.Partition
	Epoch     change.Epoch
	State     health.Status
	// Failure says why the partition has ended for good, nil otherwise.
	Failure error
	// Position is how far the partition has been acknowledged.
	Position change.Position
	// Lag is the log time between the partition and the last operation; nil while unknown.
	Lag *time.Duration
	// HeadRoom is the log time between the log's oldest entry and the partition; nil while unknown.
	HeadRoom *time.Duration
	// HeadRoomLevel says whether the head-room is below a threshold.
	HeadRoomLevel survey.Level
	// Events counts the events that have passed in this term, Rate is their recent number a second.
	Events int64
	Rate   float64
	// LastEvent is when the last event passed, zero when none has.
	LastEvent time.Time
	// Remembered is the number of events in the dedup window.
	Remembered int
}

// A Log is what is known of MongoDB's log and of its reading at one moment.
type Log struct {
	Now    time.Time
	Reach  gap.Reach
	Known  bool // the reach is
	Survey *survey.Survey
	Tail   figure.Stats
	Begun  time.Time // when the node did
}

const (
	// idleAfter is how long nothing happens before a partition counts as idle.
	idleAfter = time.Minute
	// stuckAfter is how long nothing may come while the log moves.
	stuckAfter = 30 * time.Second
	// majorityLimit is how far the majority may be behind the last operation.
	majorityLimit = 10 * time.Second
)

// Evidence is what the partitions have in common: how the reading of the log does. Who has no answer, or cannot open the log at all,
// is stuck after a while, and so is who has answers that tell nothing new although the log moves. Who does not ask is not.
func (l Log) Evidence() health.Evidence {
	var e health.Evidence
	if l.Known && !l.Reach.Majority.IsZero() {
		e.NoMajority = l.Reach.Last.Time().Sub(l.Reach.Majority.Time()) > majorityLimit
	}
	if l.Tail.Paused || l.Tail.Full {
		return e
	}
	since := func(t time.Time) time.Duration {
		if t.Before(l.Begun) {
			t = l.Begun
		}
		return l.Now.Sub(t)
	}
	e.Stuck = since(l.Tail.LastReply) > stuckAfter
	if l.Known && l.Tail.Open {
		e.Stuck = e.Stuck || l.Reach.Last.Time().Sub(l.Tail.End.Time.Time()) > stuckAfter && since(l.Tail.Moved) > stuckAfter
	}
	return e
}

// Of concludes how a partition does that has been acknowledged up to the position.
func (l Log) Of(c *Condition, p change.Partition, epoch change.Epoch, position change.Position, e health.Evidence) Partition {
	s := Partition{
		Partition: p, Epoch: epoch, Position: position, Events: c.events.Load(), Rate: c.Rate(), Remembered: int(c.remembered.Load()),
	}
	if at := c.last.Load(); at != 0 {
		s.LastEvent = time.Unix(0, at)
	}
	if l.Known {
		lag := max(0, l.Reach.Last.Time().Sub(position.Time.Time()))
		s.Lag, e.Lag = &lag, lag
		if room, level, ok := l.Survey.HeadRoom(l.Reach, position); ok {
			s.HeadRoom, s.HeadRoomLevel = &room, level
		}
	}
	if failure := c.failure.Load(); failure != nil {
		s.Failure, e.Failed = *failure, true
	}
	e.Recovering = c.recovering.Load()
	if told := c.told.Load(); told != nil {
		e.Stale = told.After(position)
	}
	e.Quiet = s.LastEvent.IsZero() || l.Now.Sub(s.LastEvent) > idleAfter
	s.State = e.Status()
	return s
}
