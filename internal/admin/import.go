//go:build wip

package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// A Move is what an import does to one partition.
type Move string

// The moves.
const (
	New     Move = "new"     // there is no mark
	Forward Move = "forward" // the mark moves forward: what is between is not delivered
	Back    Move = "back"    // the mark moves back: what is between is delivered again
	Stays   Move = "stays"   // the mark stands there already
)

// An ImportPlan says what an import would do.
type ImportPlan struct {
	// Founds says that the origin is taken from the archive, because there is none.
	Founds bool         `json:"founds"`
	Origin Origin       `json:"origin"`
	Steps  []ImportStep `json:"partitions"`

	archive Archive
}

// An ImportStep is what happens to one partition.
type ImportStep struct {
	Partition change.Partition `json:"partition"`
	From      *Position        `json:"from,omitempty"` // nil where there is no mark
	To        Position         `json:"to"`
	Move      Move             `json:"move"`
}

// Count returns how many partitions move so.
func (p *ImportPlan) Count(m Move) (n int) {
	for _, step := range p.Steps {
		if step.Move == m {
			n++
		}
	}
	return n
}

// PlanImport finds out what the import of an archive would do, and refuses one of another number of partitions or another deployment.
// It changes nothing.
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
		origin, plan.Founds = a.Origin, true
	case err != nil:
		return nil, err
	case origin.Partitions != a.Origin.Partitions:
		return nil, fault.Newf(fault.CheckpointPartitions, "the archive was made for %d partitions, the marks that stand for %d", a.Origin.Partitions, origin.Partitions)
	case !origin.Of(identity):
		return nil, fault.Newf(fault.CheckpointSource, "the marks that stand are of %s, mongodb.uri leads to %s", origin.Source, identity)
	}
	plan.Origin = ShowOrigin(origin)
	stand, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range a.Marks {
		step := ImportStep{Partition: m.Partition, To: ShowPosition(m.Position), Move: New}
		if i := slices.IndexFunc(stand, func(n checkpoint.Mark) bool { return n.Partition == m.Partition }); i >= 0 {
			from := ShowPosition(stand[i].Position)
			step.From, step.Move = &from, moveOf(stand[i].Position, m.Position)
		}
		plan.Steps = append(plan.Steps, step)
	}
	return plan, nil
}

func moveOf(from, to change.Position) Move {
	switch {
	case from.IsZero():
		return New
	case to.After(from):
		return Forward
	case from.After(to):
		return Back
	}
	return Stays
}

// Found writes the archive's origin where there is none, of the backend, which must be before anything can be claimed.
func (p *ImportPlan) Found(ctx context.Context, s Store, backend checkpoint.Backend) error {
	if !p.Founds {
		return nil
	}
	o := p.archive.Origin
	o.Backend = backend
	stands, err := s.Found(ctx, o)
	if err == nil && !stands.Equal(p.archive.Origin) {
		err = fault.New(fault.ClusterChanged, checkpoint.ErrOriginMoved)
	}
	return err
}

// Apply does what was planned, under the terms of all partitions, which the caller has claimed as a node does: nobody else can be
// saving. A mark that moves back is rewound, which ends its term; the others are saved with it. by goes into the history, with where
// the marks are from.
func (p *ImportPlan) Apply(ctx context.Context, s Store, terms []change.Term, by, from string) error {
	stand, err := s.Claim(ctx, terms)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("imported from %s, exported %s by %s", from, p.archive.At.Format(time.RFC3339), p.archive.By)
	var saves []checkpoint.Mark
	for _, m := range p.archive.Marks {
		i := slices.IndexFunc(terms, func(t change.Term) bool { return t.Partition == m.Partition })
		switch moveOf(stand[i].Position, m.Position) {
		case Stays:
		case Back:
			if _, err := s.Rewind(ctx, m.Partition, m.Position, by, why); err != nil {
				return fmt.Errorf("import partition %d: %w", m.Partition, err)
			}
		case New, Forward:
			m.Generation = max(m.Generation, stand[i].Generation)
			m.Epoch, m.At, m.By, m.Reason, m.Note = terms[i].Epoch, time.Now(), by, checkpoint.ReasonImport, why
			saves = append(saves, m)
		}
	}
	if err := errors.Join(s.Save(ctx, saves)...); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return nil
}
