package admin

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// A Repartitioner is a checkpoint store that can change its number of partitions.
type Repartitioner interface {
	// Repartition replaces the origin last with next, which may have another number of partitions,
	// and removes the checkpoints of shared subscribers, so that each of their partitions begins at
	// next's start. It returns the new origin, whose incarnation may be higher. The other
	// checkpoints, histories and the gap log stay. It is atomic. A store that consists of two may
	// end half-way; then no node starts until Repartition is called again. The fault NodeRunning
	// reports a running node; checkpoint.ErrOriginMoved reports that the origin is not last, or
	// that a checkpoint has moved back before next's start meanwhile.
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// A RepartitionPlan is the plan of a change of the number of partitions.
type RepartitionPlan struct {
	Origin Origin `json:"origin"` // as it stands
	To     int    `json:"to"`
	// Start is where the shared subscribers begin in every new partition: where the earliest of
	// them is in the old ones, or where the cluster once began where there are none; earlier where
	// one of them may have missed something.
	Start Position `json:"start"`
	// OplogBegins is the time of the log's oldest entry, nil where it cannot be known; Reached
	// whether that is before Start.
	OplogBegins *time.Time `json:"oplog_begins,omitempty"`
	Reached     Reach      `json:"reached"`
	// Entries estimates the changes between the earliest and the latest position of all
	// subscribers, nil if unknown.
	Entries     *int64                  `json:"log_entries,omitempty"`
	Subscribers []RepartitionSubscriber `json:"subscribers"`

	last   checkpoint.Origin
	start  change.Timestamp
	shared bool // there are shared subscribers
}

// A RepartitionSubscriber is the effect on a subscriber: it begins at its earliest position, and
// gets the changes between that and Latest again. It can drop the ones that it knows by position.
type RepartitionSubscriber struct {
	Subscriber string   `json:"subscriber"`
	Kind       Kind     `json:"kind"`
	Earliest   Position `json:"earliest"`
	Latest     Position `json:"latest"`
	// Without is in how many partitions a shared subscriber has no checkpoint: it is where the
	// cluster once began.
	Without int `json:"without_checkpoint"`
	// Snapshots are how many of a shared subscriber are under way, which the new partitions would
	// know nothing of.
	Snapshots int `json:"snapshots_under_way"`
}

// PlanRepartition plans a change of the number of partitions, after which nodes read a coverage. It
// changes nothing, and may be called while nodes run.
func PlanRepartition(ctx context.Context, s Store, source Source, to int, reads change.Coverage) (*RepartitionPlan, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	identity, err := source.Identity(ctx)
	if err != nil {
		return nil, err
	}
	if !origin.Of(identity) {
		return nil, fault.Newf(fault.CheckpointSource, "the checkpoints are of %s, mongodb.uri leads to %s", origin.Source, identity)
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	plan := &RepartitionPlan{Origin: ShowOrigin(origin), To: to, Subscribers: []RepartitionSubscriber{}, last: origin, start: origin.Start}
	var earliest, furthest change.Position
	for _, g := range grouped(all, origin) {
		plan.Subscribers = append(plan.Subscribers, RepartitionSubscriber{
			Subscriber: g.key.Subscriber, Kind: kindOf(g.key), Earliest: ShowPosition(g.earliest), Latest: ShowPosition(g.latest), Without: g.without,
			Snapshots: g.snapshots(),
		})
		if earliest.IsZero() || earliest.After(g.earliest) {
			earliest = g.earliest
		}
		furthest = change.Later(furthest, g.latest)
		if t := g.restart(reads); g.key.Shared && (!plan.shared || t.Compare(plan.start) < 0) {
			plan.start = t
			plan.shared = true
		}
	}
	plan.Start = ShowPosition(change.At(plan.start))
	counts := false
	if plan.OplogBegins, plan.Reached, counts, err = reach(ctx, source, plan.start); err != nil {
		return nil, err
	}
	if furthest.After(earliest) && counts {
		entries, known, err := source.CountEntries(ctx, earliest.Time, furthest.Time)
		if err != nil {
			return nil, err
		}
		if known {
			plan.Entries = &entries
		}
	}
	return plan, nil
}

// restart returns where a subscriber begins again without its checkpoints: where it is earliest, or
// before what streams have missed that is read again, since only its checkpoints tell it of that. A
// partition that has lost its checkpoint begins where the subscriber did, if that is earlier.
func (g *group) restart(reads change.Coverage) change.Timestamp {
	at := g.earliest.Time
	for _, c := range g.all {
		if _, missed, some := c.Lost(reads); some && missed.Compare(at) < 0 {
			at = missed
		}
		if began := c.Began.At; g.without > 0 && !began.IsZero() && began.Compare(at) < 0 {
			at = began
		}
	}
	return at
}

// Check returns the fault for which the plan is refused, nil if it is not.
func (p *RepartitionPlan) Check() error {
	switch {
	case p.To < 1 || p.To > change.MaxPartitions:
		return fault.Newf(fault.CommandBadArgument, "%d partitions: there may be 1 to %d", p.To, change.MaxPartitions)
	case p.To == p.Origin.Partitions:
		return fault.Newf(fault.CheckpointRepartition, "there are %d partitions already", p.To)
	case p.Reached == NotReached && p.shared: // others are where they are, or where they were earliest
		return fault.Newf(fault.CheckpointRepartition, "the oplog begins at %s, after %s, where the earliest shared subscriber is",
			p.OplogBegins.Format(time.RFC3339), p.Start.Time.Format(time.RFC3339))
	}
	for _, sub := range p.Subscribers {
		if sub.Kind == Shared && sub.Snapshots > 0 {
			return fault.Newf(fault.CheckpointRepartition, "%d snapshots of shared subscriber %q are under way", sub.Snapshots, sub.Subscriber)
		}
	}
	return nil
}

// Apply executes the plan, and returns the new origin.
func (p *RepartitionPlan) Apply(ctx context.Context, s Repartitioner, by string) (checkpoint.Origin, error) {
	if err := p.Check(); err != nil {
		return checkpoint.Origin{}, err
	}
	next := p.last
	next.Incarnation++
	next.IDFormat = change.LatestIDFormat
	next.Partitions = p.To
	next.Start = p.start
	next.At = time.Now().UTC()
	next.By = by
	stands, err := s.Repartition(ctx, p.last, next)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		err = fault.New(fault.ClusterChanged, err)
	}
	return stands, err
}
