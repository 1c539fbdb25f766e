package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// A Move is the effect of an import on one checkpoint.
type Move string

// The moves.
const (
	New     Move = "new"     // there is no checkpoint
	Forward Move = "forward" // it moves forward in some partition: the changes between are not delivered
	Back    Move = "back"    // it moves back in some partition, and forward in none: the changes between are delivered again
	Stays   Move = "stays"   // it is there already
)

// An ImportPlan is the plan of an import.
type ImportPlan struct {
	// Creates says that the origin is taken from the archive, because there is none.
	Creates bool         `json:"creates"`
	Origin  Origin       `json:"origin"`
	Steps   []ImportStep `json:"checkpoints"`
	// Apply calls Progress, if it is not nil, with the number of checkpoints done, and of all.
	Progress func(done, total int) `json:"-"`

	archive Archive
}

// An ImportStep is the step for one checkpoint.
type ImportStep struct {
	Subscriber string            `json:"subscriber"`
	Kind       Kind              `json:"kind"`
	Partition  *change.Partition `json:"partition,omitempty"` // of a shared subscriber
	// From and To are the earliest positions of the stored checkpoint, nil if there is none, and of
	// the archive's.
	From *Position `json:"from,omitempty"`
	To   Position  `json:"to"`
	Move Move      `json:"move"`
}

// Count returns how many checkpoints move so.
func (p *ImportPlan) Count(m Move) (n int) {
	for _, step := range p.Steps {
		if step.Move == m {
			n++
		}
	}
	return n
}

// PlanImport plans the import of an archive, and refuses one with another number of partitions or
// from another deployment. It changes nothing.
func PlanImport(ctx context.Context, s Store, source Source, a Archive) (*ImportPlan, error) {
	identity, err := source.Identity(ctx)
	if err != nil {
		return nil, err
	}
	if !a.Origin.Of(identity) {
		return nil, fault.Newf(fault.CheckpointSource, "the archive is of %s, mongodb.uri leads to %s", a.Origin.Source, identity)
	}
	plan := &ImportPlan{archive: a}
	origin, err := s.Origin(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoOrigin):
		origin = a.Origin
		plan.Creates = true
	case err != nil:
		return nil, err
	case origin.Partitions != a.Origin.Partitions:
		return nil, fault.Newf(fault.CheckpointPartitions, "the archive was made for %d partitions, the checkpoints here for %d", a.Origin.Partitions, origin.Partitions)
	case origin.IDFormat != a.Origin.IDFormat:
		return nil, fault.Newf(fault.CheckpointPartitions, "the archive divides documents by the format %d of _ids, the checkpoints here by %d", a.Origin.IDFormat, origin.IDFormat)
	case !origin.Of(identity):
		return nil, fault.Newf(fault.CheckpointSource, "the checkpoints here are of %s, mongodb.uri leads to %s", origin.Source, identity)
	}
	plan.Origin = ShowOrigin(origin)
	stand, err := checkpointsByKey(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, c := range a.Checkpoints {
		step := ImportStep{Subscriber: c.Subscriber, Kind: kindOf(c.Key), To: ShowPosition(c.Earliest()), Move: New}
		if c.Shared {
			step.Partition = &c.Partition
		}
		if there, ok := stand[c.Key]; ok {
			from := ShowPosition(there.Earliest())
			step.From = &from
			step.Move = moveOf(there, c, origin.Partitions)
		}
		plan.Steps = append(plan.Steps, step)
	}
	return plan, nil
}

// checkpointsByKey returns all checkpoints by their keys.
func checkpointsByKey(ctx context.Context, s checkpoint.Store) (map[checkpoint.Key]checkpoint.Checkpoint, error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	by := make(map[checkpoint.Key]checkpoint.Checkpoint, len(all))
	for _, c := range all {
		by[c.Key] = c
	}
	return by, nil
}

// moveOf returns the effect on a subscriber when one checkpoint replaces another.
func moveOf(from, to checkpoint.Checkpoint, partitions int) Move {
	from, to = from.Recounted(partitions), to.Recounted(partitions)
	back := false
	in := func(f, t change.Position) bool {
		back = back || f.After(t)
		return t.After(f)
	}
	forward := in(from.Position, to.Position)
	for _, elsewhere := range []checkpoint.Checkpoint{from, to} {
		for p := range elsewhere.Positions {
			forward = in(from.In(p), to.In(p)) || forward
		}
	}
	switch {
	case forward:
		return Forward
	case back:
		return Back
	}
	return Stays
}

// Create writes the archive's origin where there is none, of the backend, which must be before
// anything can be claimed.
func (p *ImportPlan) Create(ctx context.Context, s Store, backend checkpoint.Backend) error {
	if !p.Creates {
		return nil
	}
	o := p.archive.Origin
	o.Backend = backend
	stands, err := s.Create(ctx, o)
	if err == nil && !stands.Equal(p.archive.Origin) {
		err = fault.New(fault.ClusterChanged, checkpoint.ErrOriginMoved)
	}
	return err
}

// Apply executes the plan under the terms of all partitions, which the caller has claimed like a
// node, so that no node can be saving. A checkpoint that has moved since the plan is moved from its
// present position. by goes into the history, with the source of the checkpoints. The entries of
// the archive's gap log are added first. If it ends half-way, another import completes it.
func (p *ImportPlan) Apply(ctx context.Context, s Store, terms []change.Term, by, from string) error {
	for _, g := range p.archive.Gaps {
		if err := s.AddGap(ctx, g); err != nil {
			return fmt.Errorf("import the gap log: %w", err)
		}
	}
	stand, err := checkpointsByKey(ctx, s)
	if err != nil {
		return err
	}
	term := make(map[change.Partition]change.Term, len(terms))
	for _, t := range terms {
		term[t.Partition] = t
	}
	for i, c := range p.archive.Checkpoints {
		if p.Progress != nil {
			p.Progress(i, len(p.archive.Checkpoints))
		}
		there, ok := stand[c.Key]
		if ok && moveOf(there, c, p.Origin.Partitions) == Stays {
			continue
		}
		t, claimed := term[c.Partition] // for an exclusive one the first partition represents all
		if !claimed {
			return fmt.Errorf("import the checkpoint of %s: %w", c.Key, checkpoint.ErrFenced)
		}
		if err := t.Err(); err != nil {
			return fmt.Errorf("import the checkpoint of %s: %w", c.Key, err)
		}
		if owner := checkpoint.Owner(c.Subscriber); owner != "" && c.Claim.By+"/" != owner {
			c.Claim.By = "" // it was renamed: the identity that its name belongs to claims it
		}
		c.At = time.Now()
		c.By = by
		c.Reason = checkpoint.ReasonImport
		c.Note = fmt.Sprintf("imported from %s, exported %s by %s", from, p.archive.At.Format(time.RFC3339), p.archive.By)
		if c.Shared { // targets must not mistake the following changes for repetitions
			c.Began = checkpoint.NewBeginning(c.Began.At)
		}
		if err := s.Put(ctx, c); err != nil {
			return fmt.Errorf("import the checkpoint of %s: %w", c.Key, err)
		}
	}
	if p.Progress != nil {
		p.Progress(len(p.archive.Checkpoints), len(p.archive.Checkpoints))
	}
	return nil
}
