package streamer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
)

// A consumer is what a node knows of a partition that it owns.
type consumer struct {
	term  change.Term
	begun uint64 // events of the partition that had passed before the term

	counted uint64        // events at the last beat
	rate    atomic.Uint64 // events a second, as bits of a float
	last    atomic.Int64  // when the last event passed, to a second, in nanoseconds since 1970
}

// Serve begins to serve terms: every shared subscriber gets their partitions, from its checkpoints on.
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
	for _, s := range n.sharedSubscribers() {
		if err := s.attach(ctx, fresh); err != nil {
			return err
		}
	}
	events := n.hub.Events()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range fresh {
		n.mu.consumers[t.Partition] = &consumer{term: t, begun: events[t.Partition], counted: events[t.Partition]}
	}
	return nil
}

// Release ends terms whose partitions go to other nodes: their checkpoints are saved where the subscribers have acknowledged, and then they are
// gone from Status. What was handed over and not acknowledged is redelivered by the next owner. Terms that the node does not serve are
// ignored.
func (n *Node) Release(ctx context.Context, terms []change.Term) {
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
	if len(n.sharedSubscribers()) > 0 {
		save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
		defer cancel()
		if err := n.writer.Flush(save, checkpoint.ReasonHandoff); err != nil {
			n.logger.Warn("last checkpoints were not saved; more is redelivered by the next owner", "partitions", len(leaving), "error", err)
		}
	}
	n.forget(leaving)
}

// Ended forgets terms that are over, without saving anything.
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

// forget ends the consumers of partitions.
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

// fenced ends a term because the store has refused a checkpoint of it. It returns at once.
func (n *Node) fenced(p change.Partition, e change.Epoch, err error) {
	n.logger.Warn("term ended: a newer owner saves its checkpoints", "partition", p, "epoch", e.String(), "error", err)
	go n.Ended([]change.Term{{Partition: p, Epoch: e}})
}

// consumer returns the consumer of a partition, nil where there is none.
func (n *Node) consumer(p change.Partition) *consumer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.consumers[p]
}

// Term returns the term under which the node serves a partition.
func (n *Node) Term(p change.Partition) (change.Term, bool) {
	if c := n.consumer(p); c != nil {
		return c.term, true
	}
	return change.Term{}, false
}

// Epoch returns the epoch of the node's term of a partition, zero where it has none.
func (n *Node) Epoch(p change.Partition) change.Epoch {
	t, _ := n.Term(p)
	return t.Epoch
}

// rateWindow is the time over which rates are smoothed.
const rateWindow = 5.0 // seconds

// beat measures the rate of a partition of which so many events have passed. It is called every second.
func (c *consumer) beat(events uint64, now time.Time) {
	rate := math.Float64frombits(c.rate.Load())
	if events > c.counted {
		c.last.Store(now.UnixNano())
	}
	rate += (float64(events-c.counted) - rate) / rateWindow
	c.counted = events
	c.rate.Store(math.Float64bits(rate))
}

// A PartitionStatus is how one partition of a node does.
type PartitionStatus struct {
	Partition change.Partition
	Epoch     change.Epoch
	State     health.Status
	// Failure says why a shared subscriber is not served in it, nil otherwise.
	Failure error
	// Position is how far it has been read, and acknowledged by the shared subscribers.
	Position change.Position
	// Lag is the log time between the position and the last operation; nil while unknown.
	Lag *time.Duration
	// HeadRoom is the log time until the position leaves the oplog; nil while unknown.
	HeadRoom      *time.Duration
	HeadRoomLevel oplog.Level
	// Events counts the events that have passed in this term, Rate is their recent number a second.
	Events uint64
	Rate   float64
	// LastEvent is when the last event passed, zero when none has.
	LastEvent time.Time
}

const (
	// idleAfter is how long nothing happens before a partition counts as idle.
	idleAfter = time.Minute
	// stuckAfter is how long nothing may come while the log moves.
	stuckAfter = 30 * time.Second
	// majorityLimit is how far the majority may be behind the last operation.
	majorityLimit = 10 * time.Second
)

// Status returns how each partition of this node does, in the order of their numbers.
func (n *Node) Status() []PartitionStatus {
	now, hub, events := time.Now(), n.hub.position(), n.hub.Events()
	reach, known := n.cfg.Range.Latest(now)
	evidence := n.evidence(now, reach, known)
	shared := make([]Standing, 0, 1)
	var failure error
	for _, s := range n.sharedSubscribers() {
		shared = append(shared, s.session.Standing())
		failure = cmp.Or(failure, s.failed())
	}
	evidence.Failed, evidence.LagThreshold = failure != nil, n.cfg.LagThreshold
	n.mu.Lock()
	consumers := slices.Collect(maps.Values(n.mu.consumers))
	n.mu.Unlock()
	slices.SortFunc(consumers, func(a, b *consumer) int { return cmp.Compare(a.term.Partition, b.term.Partition) })
	all := make([]PartitionStatus, len(consumers))
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
			lag := max(0, reach.Last.Time().Sub(s.Position.Time.Time()))
			s.Lag, e.Lag = &lag, lag
			if room, level, ok := n.cfg.Range.HeadRoom(reach, s.Position); ok {
				s.HeadRoom, s.HeadRoomLevel = &room, level
			}
		}
		e.Quiet = s.LastEvent.IsZero() || now.Sub(s.LastEvent) > idleAfter
		s.State = e.Status()
		all[i] = s
	}
	return all
}

// evidence is what the partitions have in common: how the reading of the log does. Whoever has no answer, or cannot open the log at all, is
// stuck after a while, and so is whoever has answers that tell nothing new although the log moves. A tail that does not ask is not.
func (n *Node) evidence(now time.Time, reach gap.Reach, known bool) (e health.Evidence) {
	if known && !reach.Majority.IsZero() {
		e.NoMajority = reach.Last.Time().Sub(reach.Majority.Time()) > majorityLimit
	}
	for _, s := range n.hub.Sessions() {
		e.Stale = e.Stale || s.Standing().Losses > 0
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

// runPulse measures rates, and tells operators when reading is stuck and when it goes on, until the context ends.
func (n *Node) runPulse(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var stuck time.Time // since when, zero while reading goes on
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, events := time.Now(), n.hub.Events()
		n.mu.Lock()
		for p, c := range n.mu.consumers {
			c.beat(events[p], now)
		}
		partitions := len(n.mu.consumers)
		n.mu.Unlock()
		reach, known := n.cfg.Range.Latest(now)
		switch is := n.evidence(now, reach, known).Stuck; {
		case is && stuck.IsZero():
			stuck = now
			n.cfg.Board.Post(notice.Notice{
				Channel: notice.Health, Kind: notice.KindStuck, Level: notice.Critical,
				Text:   "nothing is read: MongoDB does not answer, refuses to be read, or answers without anything although its oplog moves",
				Fields: map[string]any{"last_reply": n.log.Stats().LastReply, "partitions": partitions},
			})
		case !is && !stuck.IsZero():
			n.cfg.Board.Post(notice.Notice{
				Channel: notice.Health, Kind: notice.KindReading, Level: notice.Info,
				Text:   "MongoDB's oplog is read again",
				Fields: map[string]any{"was_stuck_seconds": int(now.Sub(stuck).Seconds())},
			})
			stuck = time.Time{}
		}
	}
}

// lostNotice tells operators of a stretch that subscribers may have missed.
func lostNotice(l oplog.Loss) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindResync, Level: notice.Critical,
		Text: fmt.Sprintf("changes may have been missed from %s to %s (%s)", l.From.Time.Time(), l.To.Time.Time(), l.Reason),
		Fields: map[string]any{
			"lost_from": l.From.Time.String(), "lost_to": l.To.Time.String(), "reason": string(l.Reason), "namespaces": l.Namespaces,
		},
	}
}
