//go:build wip

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

// A Store is a store of marks with all that operators need of it.
type Store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.OriginKeeper
	checkpoint.HistoryKeeper
	checkpoint.GapKeeper
	checkpoint.Rewinder
	checkpoint.Adopter
	checkpoint.RowKeeper
}

// A Source is the deployment that the positions belong to.
type Source interface {
	// Identity names the deployment.
	Identity(ctx context.Context) (string, error)
	// Now returns the operation time.
	Now(ctx context.Context) (change.Timestamp, error)
	// FirstEntry returns the time of the log's oldest entry; ok is false where it cannot be known.
	FirstEntry(ctx context.Context) (t change.Timestamp, ok bool, err error)
	// CountEntries estimates the changes behind from, up to to; known is false where nobody can tell.
	CountEntries(ctx context.Context, from, to change.Timestamp) (n int64, known bool, err error)
}

// A Reach says whether the log still holds something.
type Reach string

// The answers.
const (
	Reached    Reach = "yes"
	NotReached Reach = "no"
	Unknown    Reach = "unknown"
)

// A RewindPlan says what a rewind would do.
type RewindPlan struct {
	To Position `json:"to"`
	// OplogBegins is the time of the log's oldest entry, nil where it cannot be known; Reached whether that is before To.
	OplogBegins *time.Time `json:"oplog_begins,omitempty"`
	Reached     Reach      `json:"reached"`
	// Entries estimates the changes of all partitions between To and the mark that stands furthest on, nil where nobody can tell.
	Entries *int64       `json:"log_entries,omitempty"`
	Steps   []RewindStep `json:"partitions"`
	// Gateways are those that have had something of what comes again, as far as rows tell; GatewaysUnknown says why some are not known.
	Gateways        []RewindGateway `json:"gateways"`
	GatewaysUnknown string          `json:"gateways_unknown,omitempty"`

	to change.Position
}

// A RewindStep is what happens to one partition.
type RewindStep struct {
	Partition  change.Partition `json:"partition"`
	From       Position         `json:"from"`
	Generation uint64           `json:"generation"` // of the mark that stands
	// Moves is false for a mark that stands before To already and stays where it is.
	Moves bool `json:"moves"`
	// Events estimates the changes of this partition that come again, nil where nobody can tell.
	Events *int64 `json:"events,omitempty"`
}

// A RewindGateway is a gateway that is told of the rewind, and gets changes again.
type RewindGateway struct {
	Gateway string    `json:"gateway"`
	SeenAt  time.Time `json:"seen_at"`
	// Partitions are how many of those that move it stands behind the target in; Furthest is where it stands in the one furthest on.
	Partitions int      `json:"partitions"`
	Furthest   Position `json:"furthest"`
}

// PlanRewind finds out what a rewind of partitions to a position would do; no partitions are all of them. It changes nothing. Only the
// marks of these partitions are read: a mark that cannot be read is in the way of no other, and no row of a gateway is.
func PlanRewind(ctx context.Context, s Store, source Source, partitions []change.Partition, to change.Position) (*RewindPlan, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	marks, err := standing(ctx, s, origin, partitions)
	if err != nil {
		return nil, err
	}
	plan := &RewindPlan{To: ShowPosition(to), Reached: Unknown, to: to}
	furthest := to
	froms := make([]change.Position, len(marks))
	for i, m := range marks {
		froms[i] = m.Position
		furthest = change.Later(furthest, m.Position)
		plan.Steps = append(plan.Steps, RewindStep{
			Partition: m.Partition, From: ShowPosition(m.Position), Generation: m.Generation, Moves: m.Position.After(to),
		})
	}
	rows, unknown := s.Rows(ctx)
	plan.concern(origin.Partitions, rows, unknown)
	first, known, err := source.FirstEntry(ctx)
	if err != nil {
		return nil, err
	}
	if known {
		begins := first.Time()
		plan.OplogBegins, plan.Reached = &begins, NotReached
		if first.Compare(to.Time) <= 0 {
			plan.Reached = Reached
		}
	}
	return plan, plan.estimate(ctx, source, origin.Partitions, froms, furthest)
}

// concern fills in the gateways that stand behind the target in a partition that moves. Where one counts the partitions otherwise, only
// its base is known.
func (p *RewindPlan) concern(partitions int, rows []checkpoint.Row, unknown error) {
	p.Gateways = []RewindGateway{}
	if unknown != nil {
		p.GatewaysUnknown = unknown.Error()
	}
	for _, r := range rows {
		if r.Partitions != partitions {
			r.Positions = nil
		}
		g := RewindGateway{Gateway: r.Gateway, SeenAt: r.SeenAt}
		var furthest change.Position
		for _, step := range p.Steps {
			at, differs := r.Positions[step.Partition]
			if !differs {
				at = r.Base
			}
			if step.Moves && at.After(p.to) {
				g.Partitions++
				furthest = change.Later(furthest, at)
			}
		}
		if g.Partitions > 0 {
			g.Furthest = ShowPosition(furthest)
			p.Gateways = append(p.Gateways, g)
		}
	}
}

// standing returns the marks of partitions, of all where none are given; where there is no mark, one at the origin's start.
func standing(ctx context.Context, s Store, origin checkpoint.Origin, partitions []change.Partition) ([]checkpoint.Mark, error) {
	var marks []checkpoint.Mark
	if len(partitions) == 0 {
		stored, err := s.List(ctx)
		if err != nil {
			return nil, err
		}
		for p := range change.Partition(origin.Partitions) {
			marks = append(marks, checkpoint.Mark{Partition: p, Position: change.At(origin.Start)})
		}
		for _, m := range stored {
			marks[m.Partition] = m
		}
	}
	for _, p := range partitions {
		m, err := s.Load(ctx, p)
		if errors.Is(err, checkpoint.ErrNoMark) {
			m, err = checkpoint.Mark{Partition: p, Position: change.At(origin.Start)}, nil
		}
		if err != nil {
			return nil, err
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// estimate fills in how much comes again. The span is counted once; a partition has its share of the part that it goes back over.
func (p *RewindPlan) estimate(ctx context.Context, source Source, partitions int, froms []change.Position, furthest change.Position) error {
	if p.Reached == NotReached || !furthest.After(p.to) {
		return nil
	}
	entries, known, err := source.CountEntries(ctx, p.to.Time, furthest.Time)
	if err != nil || !known {
		return err
	}
	p.Entries = &entries
	whole := furthest.Time.Time().Sub(p.to.Time.Time())
	for i := range p.Steps {
		if !p.Steps[i].Moves {
			continue
		}
		share := 1.0
		if part := froms[i].Time.Time().Sub(p.to.Time.Time()); whole > 0 {
			share = float64(part) / float64(whole)
		}
		events := int64(share*float64(entries)/float64(partitions) + 0.5)
		p.Steps[i].Events = &events
	}
	return nil
}

// Moves returns how many marks move.
func (p *RewindPlan) Moves() (n int) {
	for _, step := range p.Steps {
		if step.Moves {
			n++
		}
	}
	return n
}

// Check returns the fault for which the plan is refused, nil if it is not.
func (p *RewindPlan) Check() error {
	switch {
	case p.Reached == NotReached:
		return fault.Newf(fault.CheckpointRewind, "the oplog begins at %s, after %s", p.OplogBegins.Format(time.RFC3339), p.To.Time.Format(time.RFC3339))
	case p.Moves() == 0 && len(p.Steps) == 1:
		return fault.Newf(fault.CheckpointRewind, "partition %d stands at %s, which is not behind %s", p.Steps[0].Partition, p.Steps[0].From, p.To)
	case p.Moves() == 0:
		return fault.Newf(fault.CheckpointRewind, "no partition stands behind %s", p.To)
	}
	return nil
}

// Apply does what was planned, one partition after the other, and returns the marks that stand then. A mark that has moved since the
// plan was made is moved from where it stands. by and why go into the history.
func (p *RewindPlan) Apply(ctx context.Context, s Store, by, why string) ([]checkpoint.Mark, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	var written []checkpoint.Mark
	for _, step := range p.Steps {
		if !step.Moves {
			continue
		}
		m, err := s.Rewind(ctx, step.Partition, p.to, by, why)
		if errors.Is(err, checkpoint.ErrForward) {
			err = fault.New(fault.CheckpointRewind, err)
		}
		if err != nil {
			return written, fmt.Errorf("%d of %d partitions are rewound: %w", len(written), p.Moves(), err)
		}
		written = append(written, m)
	}
	return written, nil
}

// ReadOrigin reads the origin. That there is none is the fault ClusterUnknown: an operator looks for marks in the wrong place.
func ReadOrigin(ctx context.Context, s checkpoint.OriginKeeper) (checkpoint.Origin, error) {
	o, err := s.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		err = fault.New(fault.ClusterUnknown, err)
	}
	return o, err
}
