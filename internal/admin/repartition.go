//go:build wip

package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
)

// A Repartitioner is a store of marks whose partitions can be counted anew.
type Repartitioner interface {
	// Repartition puts next, which may be of another number of partitions, in the place of last, and takes the marks away, so that every
	// partition begins at next's start. It returns the origin that stands then, whose incarnation may be higher. Histories, the gap log and
	// rows stay. It is done or not done, whenever it ends; a store that is two may be half-way, where no node starts, and is asked again.
	// The fault NodeRunning says that a node is there; checkpoint.ErrOriginMoved that last does not stand, or that a mark has moved back
	// before next's start meanwhile.
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// A RepartitionPlan says what counting the partitions anew would do.
type RepartitionPlan struct {
	Origin Origin `json:"origin"` // as it stands
	To     int    `json:"to"`
	// Start is where every new partition begins: where the rearmost of the old ones stands. Furthest is where the one furthest on does: what is
	// between may be delivered again.
	Start    Position `json:"start"`
	Furthest Position `json:"furthest"`
	// Without is how many partitions have no mark: they stand at the origin's start.
	Without int `json:"without_mark"`
	// OplogBegins is the time of the log's oldest entry, nil where it cannot be known; Reached whether that is before Start.
	OplogBegins *time.Time `json:"oplog_begins,omitempty"`
	Reached     Reach      `json:"reached"`
	// Entries estimates the changes between Start and Furthest, nil where nobody can tell.
	Entries *int64 `json:"log_entries,omitempty"`
	// Rescans are the partitions whose documents are still being read again after a loss.
	Rescans []change.Partition `json:"rescans"`

	last  checkpoint.Origin
	start change.Timestamp
}

// PlanRepartition finds out what it would do to count the partitions anew. Collections are those that are read again after losses. It
// changes nothing, and may be asked while nodes run.
func PlanRepartition(ctx context.Context, s Store, source Source, to int, collections []string) (*RepartitionPlan, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	identity, err := source.Identity(ctx)
	if err != nil {
		return nil, err
	}
	if !origin.Of(identity) {
		return nil, fault.Newf(fault.CheckpointSource, "the marks are of %s, mongodb.uri leads to %s", origin.Source, identity)
	}
	marks, err := standing(ctx, s, origin, nil)
	if err != nil {
		return nil, err
	}
	plan := &RepartitionPlan{Origin: ShowOrigin(origin), To: to, Reached: Unknown, Rescans: []change.Partition{}, last: origin, start: marks[0].Position.Time}
	furthest := marks[0].Position
	for _, m := range marks {
		if m.Position.Time.Compare(plan.start) < 0 {
			plan.start = m.Position.Time
		}
		furthest = change.Later(furthest, m.Position)
		if m.At.IsZero() {
			plan.Without++
		}
	}
	plan.Start, plan.Furthest = ShowPosition(change.At(plan.start)), ShowPosition(furthest)
	first, known, err := source.FirstEntry(ctx)
	if err != nil {
		return nil, err
	}
	if known {
		begins := first.Time()
		plan.OplogBegins, plan.Reached = &begins, NotReached
		if first.Compare(plan.start) <= 0 {
			plan.Reached = Reached
		}
	}
	if plan.Reached != NotReached {
		entries, known, err := source.CountEntries(ctx, plan.start, furthest.Time)
		if err != nil {
			return nil, err
		}
		if known {
			plan.Entries = &entries
		}
	}
	return plan, plan.rescans(ctx, s, collections)
}

// rescans fills in what is still being read again.
func (p *RepartitionPlan) rescans(ctx context.Context, s Store, collections []string) error {
	gaps, err := s.Gaps(ctx)
	if err != nil || len(collections) == 0 {
		return err
	}
	for _, g := range gaps {
		lost := g.Of == 0 && (g.Reason == string(gap.HistoryLost) || g.Reason == string(gap.Refused))
		waits := func(collection string) bool { return !g.Rescan[collection].Done }
		if lost && slices.ContainsFunc(collections, waits) {
			p.Rescans = append(p.Rescans, g.Partition)
		}
	}
	slices.Sort(p.Rescans)
	p.Rescans = slices.Compact(p.Rescans)
	return nil
}

// Check returns the fault for which the plan is refused, nil if it is not.
func (p *RepartitionPlan) Check() error {
	switch {
	case p.To < 1 || p.To > change.MaxPartitions:
		return fault.Newf(fault.CommandBadArgument, "%d partitions: there may be 1 to %d", p.To, change.MaxPartitions)
	case p.To == p.Origin.Partitions:
		return fault.Newf(fault.CheckpointRepartition, "there are %d partitions already", p.To)
	case p.Reached == NotReached:
		return fault.Newf(fault.CheckpointRepartition, "the oplog begins at %s, after %s, where the rearmost partition stands",
			p.OplogBegins.Format(time.RFC3339), p.Start.Time.Format(time.RFC3339))
	case len(p.Rescans) > 0:
		return fault.Newf(fault.CheckpointRepartition, "the documents of %d partitions are still being read again after a loss, first those of partition %d",
			len(p.Rescans), p.Rescans[0])
	}
	return nil
}

// Apply does what was planned, and returns the origin that stands then.
func (p *RepartitionPlan) Apply(ctx context.Context, s Repartitioner, by string) (checkpoint.Origin, error) {
	if err := p.Check(); err != nil {
		return checkpoint.Origin{}, err
	}
	next := p.last
	next.Incarnation++
	next.Partitions, next.Start, next.At, next.By = p.To, p.start, time.Now().UTC(), by
	stands, err := s.Repartition(ctx, p.last, next)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		err = fault.New(fault.ClusterChanged, err)
	}
	return stands, err
}
