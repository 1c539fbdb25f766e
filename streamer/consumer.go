package streamer

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
)

// Serve adds terms: every shared subscriber gets their partitions, from its checkpoints.
func (n *Node) Serve(ctx context.Context, terms []change.Term) error {
	select {
	case n.serving <- struct{}{}:
		defer func() { <-n.serving }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var fresh []change.Term
	for _, t := range terms {
		if c := n.consumer(t.Partition); c == nil || c.term.Epoch != t.Epoch {
			fresh = append(fresh, t)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	n.mu.Lock()
	stopping := n.mu.stopping
	n.mu.Unlock()
	if stopping {
		return ErrStopping
	}
	since := time.Now() // one for all, so that they share a stream
	for _, s := range n.sharedSubscribers() {
		if err := s.attach(ctx, fresh, since); err != nil {
			return err
		}
	}
	events := n.hub.Events()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range fresh {
		if n.mu.served[t.Partition] {
			n.restarts.Inc()
		}
		n.mu.served[t.Partition] = true
		n.mu.consumers[t.Partition] = &consumer{term: t, begun: events[t.Partition], counted: events[t.Partition]}
	}
	return nil
}

// Drain ends terms whose partitions move to other nodes. First it waits, for at most
// NodeConfig.FlushTimeout, until shared subscribers have acknowledged the changes that they
// received, and until the checkpoints are saved. The next owner redelivers unacknowledged changes.
// Terms that the node does not serve are ignored.
func (n *Node) Drain(ctx context.Context, terms []change.Term) {
	n.serving <- struct{}{}
	defer func() { <-n.serving }()
	var leaving []change.Partition
	for _, t := range terms {
		if c := n.consumer(t.Partition); c != nil && c.term.Epoch == t.Epoch {
			leaving = append(leaving, t.Partition)
		}
	}
	if len(leaving) == 0 {
		return
	}
	if shared := n.sharedSubscribers(); len(shared) > 0 {
		n.handOut(ctx, shared, leaving)
		save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
		defer cancel()
		if err := n.writer.Flush(save, checkpoint.ReasonHandoff); err != nil {
			n.logger.Warn("saving last checkpoints failed, the next owner will redeliver more", "partitions", len(leaving), "error", err)
		}
	}
	n.forget(leaving)
}

// Broadcast continues to deliver partitions that have moved to other nodes to the sessions that
// follow the owners and have attached them, until the terms are over or the subscribers detach
// them. Then those sessions lose them, and say so. Shared subscribers get nothing: their terms have
// ended. It does not block.
func (n *Node) Broadcast(window []change.Term) {
	for _, s := range n.hub.Sessions() {
		s.Limit(window)
	}
}

// Ended removes terms that have ended, without saving.
func (n *Node) Ended(terms []change.Term) {
	n.serving <- struct{}{}
	defer func() { <-n.serving }()
	var over []change.Partition
	for _, t := range terms {
		if c := n.consumer(t.Partition); c != nil && c.term.Epoch == t.Epoch {
			over = append(over, t.Partition)
		}
	}
	n.forget(over)
}

// forget removes the consumers of partitions.
func (n *Node) forget(partitions []change.Partition) {
	if len(partitions) == 0 {
		return
	}
	for _, s := range n.sharedSubscribers() {
		s.detach(partitions)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range partitions {
		delete(n.mu.consumers, p)
	}
}

// Term returns the term under which the node serves a partition.
func (n *Node) Term(p change.Partition) (change.Term, bool) {
	if c := n.consumer(p); c != nil {
		return c.term, true
	}
	return change.Term{}, false
}

// Epoch returns the epoch of the node's term of a partition, zero without a term.
func (n *Node) Epoch(p change.Partition) change.Epoch {
	t, _ := n.Term(p)
	return t.Epoch
}

// rateWindow is the smoothing time of rates.
const rateWindow = 5.0 // seconds

// beat updates the rate. It is called every second with the total number of events.
func (c *consumer) beat(events uint64, now time.Time) {
	rate := math.Float64frombits(c.rate.Load())
	if events > c.counted {
		c.last.Store(now.UnixNano())
	}
	rate += (float64(events-c.counted) - rate) / rateWindow
	c.counted = events
	c.rate.Store(math.Float64bits(rate))
}

const (
	// idleAfter is the time without events after which a partition is idle.
	idleAfter = time.Minute
	// stuckAfter is the time without replies, or without progress although the oplog advances,
	// after which reading is stuck.
	stuckAfter = 30 * time.Second
	// majorityLimit is the tolerated lag of the majority commit point.
	majorityLimit = 10 * time.Second
)

// Status returns the status of each owned partition, ordered by number.
func (n *Node) Status() []PartitionStatus {
	now := time.Now()
	hub := n.hub.Position()
	events := n.hub.Events()
	reach, known := n.reach(now)
	evidence := n.evidence(now, reach, known)
	since := n.away()
	evidence.Stuck = evidence.Stuck || !since.IsZero()
	shared := make([]delivery.SessionState, 0, 1)
	var failure error
	for _, s := range n.sharedSubscribers() {
		shared = append(shared, s.session.State())
		failure = cmp.Or(failure, s.failed())
	}
	evidence.Failed = failure != nil
	evidence.LagThreshold = n.cfg.LagThreshold
	n.mu.Lock()
	consumers := slices.Collect(maps.Values(n.mu.consumers))
	n.mu.Unlock()
	slices.SortFunc(consumers, func(a, b *consumer) int { return cmp.Compare(a.term.Partition, b.term.Partition) })
	all, durations := make([]PartitionStatus, len(consumers)), make([]struct{ lag, room time.Duration }, len(consumers))
	for i, c := range consumers {
		p := c.term.Partition
		s := PartitionStatus{
			Partition: p, Epoch: c.term.Epoch, Failure: failure, Position: hub, Events: events[p] - c.begun, Rate: math.Float64frombits(c.rate.Load()),
		}
		for _, st := range shared {
			if at, there := st.Partitions[p]; there && s.Position.After(at) {
				s.Position = at
			}
		}
		if last := c.last.Load(); last != 0 {
			s.LastEvent = time.Unix(0, last)
		}
		e := evidence
		if known && !s.Position.IsZero() {
			d := &durations[i]
			d.lag = max(0, reach.Last.Time().Sub(s.Position.Time.Time()))
			s.Lag = &d.lag
			e.Lag = d.lag
			if room, level, ok := n.cfg.Range.HeadRoom(reach, s.Position); ok {
				d.room = room
				s.HeadRoom = &d.room
				s.HeadRoomLevel = level
			}
		}
		e.Quiet = s.LastEvent.IsZero() || now.Sub(s.LastEvent) > idleAfter
		s.State = e.Status()
		if !since.IsZero() {
			s.LastKnown = n.lastKnown(since, s.Position, e)
		}
		all[i] = s
	}
	return all
}

// away returns since when MongoDB cannot be read, zero while it can.
func (n *Node) away() time.Time {
	if n.cfg.Away == nil {
		return time.Time{}
	}
	return n.cfg.Away()
}

// reach returns the extent of the oplog; known is false while that is unknown: also from the moment
// on at which MongoDB is known to be away, because its last answer says nothing of the oplog now.
func (n *Node) reach(now time.Time) (reach gap.Reach, known bool) {
	reach, known = n.cfg.Range.Latest(now)
	return reach, known && n.away().IsZero()
}

// lastKnown returns what was known of a partition before MongoDB was away, which it has been since
// a time.
func (n *Node) lastKnown(since time.Time, at change.Position, e health.Evidence) *health.LastKnown {
	k := &health.LastKnown{At: since}
	if reach, known := n.cfg.Range.Latest(since); known && !at.IsZero() {
		e.Lag = max(0, reach.Last.Time().Sub(at.Time.Time()))
		seconds := e.Lag.Seconds()
		k.Lag = &seconds
	}
	e.Stuck = false
	k.Status = e.Status()
	return k
}

// evidence returns what all partitions share: the health of reading. Reading is stuck if replies
// are missing or bring nothing new although the log advances. A paused or full tail is not stuck.
func (n *Node) evidence(now time.Time, reach gap.Reach, known bool) (e health.Evidence) {
	if known && !reach.Majority.IsZero() {
		e.NoMajority = reach.Last.Time().Sub(reach.Majority.Time()) > majorityLimit
	}
	for _, s := range n.sharedSubscribers() { // a loss of one client is that client's
		e.Stale = e.Stale || s.session.State().Losses > 0
	}
	tail := n.log.Stats()
	if tail.Paused || tail.Full {
		return e
	}
	since := func(t time.Time) time.Duration {
		if t.Before(n.begun) {
			t = n.begun
		}
		return now.Sub(t)
	}
	e.Stuck = since(tail.LastReply) > stuckAfter
	if known && tail.Open {
		e.Stuck = e.Stuck || reach.Last.Time().Sub(tail.End.Time.Time()) > stuckAfter && since(tail.Moved) > stuckAfter
	}
	return e
}

// A Reading is how the node reads the oplog.
type Reading struct {
	// Stuck says that nothing comes although the oplog advances, or that MongoDB answers nothing,
	// NoMajority that the majority commit point does not follow.
	Stuck, NoMajority bool
	// Lag is the log time from the node's position to the last operation.
	Lag time.Duration
	// Known says that the extent of the oplog is known, without which NoMajority and Lag are not.
	Known bool
}

// Reading returns how the node reads the oplog.
func (n *Node) Reading() Reading {
	now := time.Now()
	reach, known := n.cfg.Range.Latest(now)
	e := n.evidence(now, reach, known)
	r := Reading{Stuck: e.Stuck, NoMajority: e.NoMajority, Known: known}
	if at := n.hub.Position(); known && !at.IsZero() {
		r.Lag = max(0, reach.Last.Time().Sub(at.Time.Time()))
	}
	return r
}

// fenced ends a term because the store rejected its checkpoint. It returns at once.
func (n *Node) fenced(p change.Partition, e change.Epoch, err error) {
	n.logger.Warn("term ended by a newer owner", "partition", p, "epoch", e.String(), "error", err)
	go n.Ended([]change.Term{{Partition: p, Epoch: e}})
}
