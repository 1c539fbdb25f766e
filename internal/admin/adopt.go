package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongostream/change"
	"mongostream/checkpoint"
	"mongostream/fault"
)

// An AdoptPlan says what adopting the marks would do.
type AdoptPlan struct {
	Origin Origin `json:"origin"` // as it stands
	// Source is the deployment that the configuration leads to, NewSource whether it is another one than the origin's.
	Source    string `json:"source"`
	NewSource bool   `json:"new_source"`
	// Now is the deployment's time. Ahead are the marks that stand behind it: positions of a log that is no more.
	Now   Position `json:"now"`
	Ahead []Mark   `json:"ahead"`
	// To is where the marks ahead, and an origin ahead, are moved back to.
	To Position `json:"to"`
	// StartAhead says that the origin's start is ahead too.
	StartAhead bool `json:"start_ahead"`

	last checkpoint.Origin
	to   change.Timestamp
}

// PlanAdopt finds out what adopting would do. Marks that are ahead of the deployment's time go back to the given time, which is
// the time of the log's oldest entry where it is zero: whatever the restored deployment has written since is delivered. It changes
// nothing.
func PlanAdopt(ctx context.Context, s Store, source Source, to change.Timestamp) (*AdoptPlan, error) {
	origin, err := s.Origin(ctx)
	if err != nil {
		return nil, noCluster(err)
	}
	identity, err := source.Identity(ctx)
	if err != nil {
		return nil, err
	}
	now, err := source.Now(ctx)
	if err != nil {
		return nil, err
	}
	marks, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	plan := &AdoptPlan{
		Origin: ShowOrigin(origin), Source: identity, NewSource: !origin.Of(identity), Now: ShowPosition(change.At(now)), Ahead: []Mark{},
		StartAhead: ahead(origin.Start, now), last: origin,
	}
	for _, m := range marks {
		if ahead(m.Position.Time, now) {
			plan.Ahead = append(plan.Ahead, ShowMark(m))
		}
	}
	if plan.to = to; to.IsZero() {
		first, known, err := source.FirstEntry(ctx)
		if err != nil {
			return nil, err
		}
		if plan.to = now; known {
			plan.to = first
		}
	}
	if ahead(plan.to, now) {
		return nil, fault.Newf(fault.MarkRewind, "%s is ahead of MongoDB, which is at %s", plan.to.Time().Format(time.RFC3339), now.Time().Format(time.RFC3339))
	}
	plan.To = ShowPosition(change.At(plan.to))
	return plan, nil
}

// ahead reports whether a time lies behind the deployment's. Only the seconds count: the next operation's time may have been told
// before it happens.
func ahead(t, now change.Timestamp) bool { return t.T > now.T }

// Check returns the fault for which the plan is refused, nil if it is not: another deployment must be accepted.
func (p *AdoptPlan) Check(acceptSource bool) error {
	if p.NewSource && !acceptSource {
		return fault.Newf(fault.MarkSource, "the marks are of %s, mongodb.uri leads to %s; --source accepts it", p.Origin.Source, p.Source)
	}
	return nil
}

// Apply raises the incarnation, which ends every epoch before, and moves the marks back that are ahead. It returns the origin that
// stands then.
func (p *AdoptPlan) Apply(ctx context.Context, s Store, by string) (checkpoint.Origin, error) {
	next := p.last
	next.Incarnation++
	next.Source, next.At, next.By = p.Source, time.Now().UTC(), by
	if p.StartAhead {
		next.Start = p.to
	}
	err := s.Adopt(ctx, p.last, next)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		return checkpoint.Origin{}, fault.New(fault.ClusterChanged, err)
	}
	if err != nil {
		return checkpoint.Origin{}, err
	}
	for _, m := range p.Ahead {
		why := fmt.Sprintf("adopted: the mark was ahead of MongoDB, which was at %s", p.Now)
		if _, err := s.Rewind(ctx, m.Partition, change.At(p.to), by, why); err != nil {
			return next, fmt.Errorf("move partition %d back: %w", m.Partition, err)
		}
	}
	return next, nil
}
