package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
)

// An AdoptPlan says what adopting the checkpoints would do.
type AdoptPlan struct {
	Origin Origin `json:"origin"` // as it stands
	// Source is the deployment that the configuration leads to, NewSource whether it is another one
	// than the origin's.
	Source    string `json:"source"`
	NewSource bool   `json:"new_source"`
	// Now is the deployment's time. Ahead are the checkpoints of a lost log: those that are later
	// in some partition or, if a time was given, later than that.
	Now   Position     `json:"now"`
	Ahead []Checkpoint `json:"ahead"`
	// To is where the checkpoints ahead, and an origin ahead, are moved back to.
	To Position `json:"to"`
	// StartAhead says that the origin's start is ahead too.
	StartAhead bool `json:"start_ahead"`
	// Etcd is the etcd that the configuration leads to, NewEtcd whether the origin names another
	// one.
	Etcd    Backend `json:"etcd"`
	NewEtcd bool    `json:"new_etcd"`

	backend checkpoint.Backend
	last    checkpoint.Origin
	ahead   []checkpoint.Checkpoint
	to      change.Timestamp
}

// PlanAdopt finds out what adopting would do. The time that may be given is the one to which the
// deployment was restored: checkpoints after it go back to it. Without one, checkpoints ahead of
// the deployment's time go back to the log's oldest entry: whatever the restored deployment has
// written since is delivered, and more. The backend is that of the configuration, which the origin
// names afterwards; one that keeps checkpoints elsewhere than the origin says is the fault
// ClusterBackend. It changes nothing.
func PlanAdopt(ctx context.Context, s Store, source Source, to change.Timestamp, backend checkpoint.Backend) (*AdoptPlan, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	if stands := origin.Backend.Store; stands != "" && backend.Store != "" && stands != backend.Store {
		return nil, fault.Newf(fault.ClusterBackend, "the checkpoints are in %s; reliability.checkpoint.backend is %s", stands, backend.Store)
	}
	identity, err := source.Identity(ctx)
	if err != nil {
		return nil, err
	}
	now, err := source.Now(ctx)
	if err != nil {
		return nil, err
	}
	if ahead(to, now) {
		return nil, fault.Newf(fault.CheckpointRewind, "%s is ahead of MongoDB, which is at %s", to.Time().Format(time.RFC3339), now.Time().Format(time.RFC3339))
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	plan := &AdoptPlan{
		Origin: ShowOrigin(origin), Source: identity, NewSource: !origin.Of(identity), Now: ShowPosition(change.At(now)), Ahead: []Checkpoint{},
		Etcd: showBackend(backend), NewEtcd: backend.With(origin.Backend) != origin.Backend.With(backend),
		last: origin, to: to, backend: backend,
	}
	lost := func(t change.Timestamp) bool { return ahead(t, now) }
	if to.IsZero() {
		if plan.to, err = oldest(ctx, source, now); err != nil {
			return nil, err
		}
	} else {
		lost = func(t change.Timestamp) bool { return t.Compare(to) > 0 }
	}
	plan.To = ShowPosition(change.At(plan.to))
	plan.StartAhead = lost(origin.Start)
	for _, c := range all {
		if lost(c.Latest().Time) {
			plan.ahead, plan.Ahead = append(plan.ahead, c), append(plan.Ahead, showCheckpoint(c))
		}
	}
	return plan, nil
}

// oldest returns the time of the log's oldest entry, or now where that cannot be known.
func oldest(ctx context.Context, source Source, now change.Timestamp) (change.Timestamp, error) {
	first, known, err := source.FirstEntry(ctx)
	if err != nil || !known {
		return now, err
	}
	return first, nil
}

// ahead reports whether a time is after the deployment's. Only the seconds count: the server may
// report the next operation's time before the operation happens.
func ahead(t, now change.Timestamp) bool { return t.T > now.T }

// Check returns the fault for which the plan is refused, nil if it is not: another deployment must
// be accepted.
func (p *AdoptPlan) Check(acceptSource bool) error {
	if p.NewSource && !acceptSource {
		return fault.Newf(fault.CheckpointSource, "the checkpoints are of %s, mongodb.uri leads to %s; --source accepts it", p.Origin.Source, p.Source)
	}
	return nil
}

// Apply raises the incarnation, which ends all earlier epochs, and moves the checkpoints back that
// are ahead, after an entry in the gap log, because their subscribers have had changes that are
// lost. It returns the new origin. If it ends half-way, a new plan completes it.
func (p *AdoptPlan) Apply(ctx context.Context, s Store, by string) (checkpoint.Origin, error) {
	next := p.last
	next.Incarnation++
	next.Source = p.Source
	next.At = time.Now().UTC()
	next.By = by
	if next.Backend = p.backend; p.backend.Prefix != "" { // an etcd that is not the same as before, whatever its id
		next.Backend.ID = rand.Text()
	}
	if p.StartAhead {
		next.Start = p.to
	}
	err := s.Adopt(ctx, p.last, next)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		return checkpoint.Origin{}, fault.New(fault.ClusterChanged, err)
	}
	if err == nil {
		next, err = s.Origin(ctx) // its incarnation may be higher: a store that is two must be above both
	}
	if err != nil || len(p.ahead) == 0 {
		return next, err
	}
	if err := s.AddGap(ctx, p.lost(next.At, by)); err != nil {
		return next, fmt.Errorf("record what was lost: %w", err)
	}
	why := fmt.Sprintf("adopted: the checkpoint was of a log that is no more; MongoDB was at %s", p.Now)
	for _, c := range p.ahead {
		if _, err := s.Rewind(ctx, c.Key, change.At(p.to), by, why); err != nil {
			return next, fmt.Errorf("move the checkpoint of %s back: %w", c.Key, err)
		}
	}
	return next, nil
}

// lost returns the entry of the gap log, which bounds the lost changes that subscribers have had.
func (p *AdoptPlan) lost(found time.Time, by string) checkpoint.Gap {
	g := checkpoint.Gap{To: change.At(p.to), Reason: string(gap.AheadOfServer), Found: found, By: by}
	for _, c := range p.ahead {
		if at := c.Latest(); at.After(g.From) {
			g.From = at
			g.Fingerprint = c.Fingerprint
		}
	}
	return g
}
