package streamer

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"mongostream/change"
	"mongostream/dedup"
	"mongostream/gap"
	"mongostream/health"
	"mongostream/streamer/survey"
)

// A condition is what a consumer tells of itself; it may be read from anywhere.
type condition struct {
	events     atomic.Int64  // that have passed
	last       atomic.Int64  // when the last one did, in nanoseconds since 1970
	remembered atomic.Int64  // events in the window
	rate       atomic.Uint64 // events a second, as bits of a float
	recovering atomic.Bool
	told       atomic.Pointer[change.Position] // the end of the last loss that the subscribers were told of
	failure    atomic.Pointer[error]           // why the consumer has ended for good
}

// passed notes events that have passed.
func (c *condition) passed(n int, at time.Time, w *dedup.Window) {
	if n > 0 {
		c.events.Add(int64(n))
		c.last.Store(at.UnixNano())
	}
	if w != nil {
		c.remembered.Store(int64(w.Len()))
	}
}

// A PartitionStatus is how one partition of this node does.
type PartitionStatus struct {
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

// Status returns how each partition of this node does, in the order of their numbers.
func (n *Node) Status() []PartitionStatus {
	now := time.Now()
	reach, known := n.survey.Latest(now)
	stream := n.streamEvidence(now, reach, known)
	consumers := n.consumers()
	all := make([]PartitionStatus, len(consumers))
	for i, c := range consumers {
		all[i] = n.statusOf(c, now, reach, known, stream)
	}
	return all
}

func (n *Node) statusOf(c *Consumer, now time.Time, reach gap.Reach, known bool, e health.Evidence) PartitionStatus {
	s := PartitionStatus{
		Partition: c.term.Partition, Epoch: c.term.Epoch, Position: c.LowWater(), Events: c.condition.events.Load(),
		Rate: math.Float64frombits(c.condition.rate.Load()), Remembered: int(c.condition.remembered.Load()),
	}
	if at := c.condition.last.Load(); at != 0 {
		s.LastEvent = time.Unix(0, at)
	}
	if known {
		lag := max(0, reach.Last.Time().Sub(s.Position.Time.Time()))
		s.Lag, e.Lag = &lag, lag
		if room, level, ok := n.survey.HeadRoom(reach, s.Position); ok {
			s.HeadRoom, s.HeadRoomLevel = &room, level
		}
	}
	if failure := c.condition.failure.Load(); failure != nil {
		s.Failure, e.Failed = *failure, true
	}
	e.Recovering = c.condition.recovering.Load()
	if told := c.condition.told.Load(); told != nil {
		e.Stale = told.After(s.Position)
	}
	e.Quiet = s.LastEvent.IsZero() || now.Sub(s.LastEvent) > idleAfter
	s.State = e.Status()
	return s
}

const (
	// idleAfter is how long nothing happens before a partition counts as idle.
	idleAfter = time.Minute
	// stuckAfter is how long nothing may come while the log moves.
	stuckAfter = 30 * time.Second
	// majorityLimit is how far the majority may be behind the last operation.
	majorityLimit = 10 * time.Second
)

// streamEvidence is what the partitions have in common: how the node's reading does.
func (n *Node) streamEvidence(now time.Time, reach gap.Reach, known bool) health.Evidence {
	stats := n.log.Stats()
	var e health.Evidence
	if known && !reach.Majority.IsZero() {
		e.NoMajority = reach.Last.Time().Sub(reach.Majority.Time()) > majorityLimit
	}
	silent := now.Sub(stats.LastReply) > stuckAfter
	e.Stuck = silent && !stats.Paused && (stats.Open || now.Sub(n.begun) > stuckAfter)
	if known && stats.Open && !stats.Paused {
		e.Stuck = e.Stuck || reach.Last.Time().Sub(stats.End.Time.Time()) > stuckAfter && now.Sub(stats.Moved) > stuckAfter
	}
	return e
}

// Uptime returns for how long the node has been there.
func (n *Node) Uptime() time.Duration { return time.Since(n.begun) }

// MarksFailing reports whether the last round of marks could not be saved.
func (n *Node) MarksFailing() bool { return n.manager.Failing() }

// rateWindow is the time over which rates are smoothed.
const rateWindow = 5.0 // seconds

// runRates measures the consumers' events a second, smoothed, until the context ends.
func (n *Node) runRates(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := make(map[*Consumer]int64)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		seen := make(map[*Consumer]int64, len(last))
		for _, c := range n.consumers() {
			now := c.condition.events.Load()
			rate := math.Float64frombits(c.condition.rate.Load())
			rate += (float64(now-last[c]) - rate) / rateWindow
			c.condition.rate.Store(math.Float64bits(rate))
			seen[c] = now
		}
		last = seen
	}
}
