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
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/notice"
)

// A Store is a store of checkpoints with all that operators need of it.
type Store interface {
	checkpoint.Store
	checkpoint.Rewinder
	checkpoint.OriginKeeper
	checkpoint.Adopter
	checkpoint.GapKeeper
}

// A Source is the deployment that the positions belong to.
type Source interface {
	// Identity names the deployment.
	Identity(ctx context.Context) (string, error)
	// Now returns the operation time.
	Now(ctx context.Context) (change.Timestamp, error)
	// FirstEntry returns the time of the oplog's oldest entry; ok is false where it cannot be
	// known.
	FirstEntry(ctx context.Context) (t change.Timestamp, ok bool, err error)
	// CountEntries estimates the changes of the oplog after from, up to to; known is false if that
	// is impossible.
	CountEntries(ctx context.Context, from, to change.Timestamp) (n int64, known bool, err error)
}

// A Retainer is a Source that has changes from before the oplog.
type Retainer interface {
	// Extend returns the reach of an oplog together with the changes from before it.
	Extend(oplog gap.Reach) gap.Reach
}

// extent returns how far the log reaches: its First is where the oplog begins, which can be
// counted, and Begins() where readable changes begin. known is false if that cannot be known.
func extent(ctx context.Context, source Source, now change.Timestamp) (r gap.Reach, known bool, err error) {
	r.Last = now
	if r.First, known, err = source.FirstEntry(ctx); err != nil || !known {
		return r, false, err
	}
	if log, tells := source.(LogSource); tells {
		r.Growing = log.Growing(ctx)
	}
	if retainer, retains := source.(Retainer); retains {
		r = retainer.Extend(r)
	}
	return r, true, nil
}

// found is extent at the present time. MongoDB has measureTimeout to answer.
func found(ctx context.Context, source Source) (r gap.Reach, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	now, err := source.Now(ctx)
	if err != nil {
		return r, false, err
	}
	return extent(ctx, source, now)
}

// A Reach says whether the log still holds something.
type Reach string

// The answers.
const (
	Reached    Reach = "yes"
	NotReached Reach = "no"
	Unknown    Reach = "unknown"
)

// reach returns where the log begins, whether that is before the time, and whether the changes
// after the time can be counted.
func reach(ctx context.Context, source Source, t change.Timestamp) (begins *time.Time, reached Reach, counts bool, err error) {
	r, known, err := found(ctx, source)
	if err != nil || !known {
		return nil, Unknown, true, err
	}
	first := r.Begins()
	at := first.Time()
	if first.Compare(t) > 0 {
		return &at, NotReached, false, nil
	}
	return &at, Reached, countable(r, t), nil
}

// A RewindPlan is the plan of a rewind.
type RewindPlan struct {
	Subscriber string   `json:"subscriber"`
	To         Position `json:"to"`
	// OplogBegins is the time of the oldest entry that can be read, nil where it cannot be known;
	// Reached whether that is before To.
	OplogBegins *time.Time `json:"oplog_begins,omitempty"`
	Reached     Reach      `json:"reached"`
	// Entries estimates the changes of all partitions between To and the latest position, nil if
	// unknown, as before the oplog.
	Entries *int64       `json:"log_entries,omitempty"`
	Steps   []RewindStep `json:"checkpoints"`

	to change.Position
}

// A RewindStep is the step for one checkpoint.
type RewindStep struct {
	Kind      Kind              `json:"kind"`
	Partition *change.Partition `json:"partition,omitempty"` // of a shared subscriber
	// From is the latest position of the checkpoint.
	From       Position `json:"from"`
	Generation uint64   `json:"generation"` // as it stands
	Claim      *Claim   `json:"claim,omitempty"`
	// Moves is false for a checkpoint that is nowhere after To and stays as it is.
	Moves bool `json:"moves"`
	// Repairs says that the checkpoint is corrupt: From is the newest entry of its history, which
	// takes its place, moved back to To if it is later.
	Repairs bool `json:"repairs,omitempty"`
	// Events estimates the changes that are delivered again, nil if unknown. A subscriber gets
	// those that match its subscriptions.
	Events *int64 `json:"events,omitempty"`

	checkpoint checkpoint.Checkpoint
}

// Find returns the checkpoints of a subscriber; those of a shared one in the partitions only, where
// there are some. That there are none is the fault CommandBadArgument. One that cannot be read is
// in the way of no other partition's.
func Find(ctx context.Context, s checkpoint.Store, subscriber string, partitions ...change.Partition) ([]checkpoint.Checkpoint, error) {
	all, unread := s.Load(ctx, subscriber)
	if len(partitions) == 0 {
		if unread == nil && len(all) == 0 {
			return nil, fault.Newf(fault.CommandBadArgument, "subscriber %q has no checkpoint", subscriber)
		}
		return all, unread
	}
	var found []checkpoint.Checkpoint
	for _, p := range partitions {
		i := slices.IndexFunc(all, func(c checkpoint.Checkpoint) bool { return c.Shared && c.Partition == p })
		switch {
		case i >= 0:
			found = append(found, all[i])
		case unread != nil:
			return found, unread
		case slices.ContainsFunc(all, func(c checkpoint.Checkpoint) bool { return !c.Shared }):
			return nil, fault.Newf(fault.CommandBadArgument, "subscriber %q is exclusive: it has one checkpoint for all partitions", subscriber)
		default:
			return nil, fault.Newf(fault.CommandBadArgument, "subscriber %q has no checkpoint in partition %d", subscriber, p)
		}
	}
	return found, nil
}

// PlanRewind plans a rewind of a subscriber to a position: for a shared one in the given
// partitions, all if none are given. A corrupt checkpoint will be repaired from its history. It
// changes nothing.
func PlanRewind(
	ctx context.Context, s Store, source Source, subscriber string, partitions []change.Partition, to change.Position,
) (*RewindPlan, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	stand, corrupt, err := findRepairable(ctx, s, subscriber, partitions, origin.Partitions)
	if err != nil {
		return nil, err
	}
	if len(partitions) == 0 {
		if err := checkMissing(ctx, s, origin, slices.Concat(stand, corrupt), to); err != nil {
			return nil, err
		}
	}
	plan := &RewindPlan{Subscriber: subscriber, To: ShowPosition(to), to: to}
	furthest := to
	for _, c := range corrupt {
		step := RewindStep{
			Kind: kindOf(c.Key), From: ShowPosition(c.Position), Generation: c.Generation, Claim: showClaim(c), Moves: true, Repairs: true, checkpoint: c,
		}
		if c.Shared {
			step.Partition = &c.Partition
		}
		plan.Steps = append(plan.Steps, step)
	}
	for _, c := range stand {
		from := c.Latest()
		furthest = change.Later(furthest, from)
		step := RewindStep{
			Kind: kindOf(c.Key), From: ShowPosition(from), Generation: c.Generation, Claim: showClaim(c), Moves: from.After(to), checkpoint: c,
		}
		if c.Shared {
			step.Partition = &c.Partition
		}
		plan.Steps = append(plan.Steps, step)
	}
	counts := false
	if plan.OplogBegins, plan.Reached, counts, err = reach(ctx, source, to.Time); err != nil {
		return nil, err
	}
	if !counts {
		return plan, nil
	}
	return plan, plan.estimate(ctx, source, origin.Partitions, furthest)
}

// findRepairable returns the checkpoints of a subscriber as Find does, and the newest entries of
// the histories of those that are corrupt. If one has no history, or is of a newer version, it
// returns why the checkpoint cannot be read.
func findRepairable(
	ctx context.Context, s checkpoint.Store, subscriber string, partitions []change.Partition, n int,
) (stand, corrupt []checkpoint.Checkpoint, err error) {
	stand, err = Find(ctx, s, subscriber, partitions...)
	if fault.Of(err) != fault.CheckpointCorrupt {
		return stand, nil, err
	}
	all, unread := s.Load(ctx, subscriber)
	there := make(map[checkpoint.Key]checkpoint.Checkpoint, len(all))
	for _, c := range all {
		there[c.Key] = c
	}
	keys := []checkpoint.Key{{Subscriber: subscriber}}
	wanted := partitions
	for p := range n {
		if len(partitions) == 0 {
			wanted = append(wanted, change.Partition(p))
		}
	}
	for _, p := range wanted {
		keys = append(keys, checkpoint.Key{Subscriber: subscriber, Shared: true, Partition: p})
	}
	stand = nil
	for _, k := range keys {
		if c, readable := there[k]; readable {
			stand = append(stand, c)
			continue
		}
		history, failed := s.History(ctx, k)
		switch {
		case len(history) > 0:
			corrupt = append(corrupt, history[0])
		case failed != nil:
			return nil, nil, failed
		case len(partitions) > 0 && k.Shared:
			return nil, nil, unread
		}
	}
	if len(corrupt) == 0 {
		return nil, nil, unread
	}
	return stand, corrupt, nil
}

// checkMissing returns the fault CheckpointRewind if a shared subscriber has lost the checkpoint of
// a partition that begins after the position: where its history ends (Shared.begin).
func checkMissing(ctx context.Context, s checkpoint.Store, origin checkpoint.Origin, all []checkpoint.Checkpoint, to change.Position) error {
	if len(all) == 0 || !all[0].Shared {
		return nil
	}
	has := make(map[change.Partition]bool, len(all))
	for _, c := range all {
		has[c.Partition] = true
	}
	for p := range change.Partition(origin.Partitions) {
		if has[p] {
			continue
		}
		k := checkpoint.Key{Subscriber: all[0].Subscriber, Shared: true, Partition: p}
		history, err := s.History(ctx, k)
		switch {
		case len(history) == 0 && err != nil:
			return err
		case len(history) == 0 || history[0].Epoch.Incarnation != origin.Incarnation:
		case history[0].Position.After(to):
			return fault.Newf(fault.CheckpointRewind, "%s has lost its checkpoint, and would begin at %s: have a node serve it first, which saves another one", k, history[0].Position)
		}
	}
	return nil
}

// estimate fills in how much is delivered again. The span is counted once; a partition has its
// share of the part that it goes back over.
func (p *RewindPlan) estimate(ctx context.Context, source Source, partitions int, furthest change.Position) error {
	if !furthest.After(p.to) {
		return nil
	}
	entries, known, err := source.CountEntries(ctx, p.to.Time, furthest.Time)
	if err != nil || !known {
		return err
	}
	p.Entries = &entries
	whole := furthest.Time.Time().Sub(p.to.Time.Time())
	share := func(from change.Position) float64 {
		switch {
		case !from.After(p.to):
			return 0
		case whole <= 0:
			return 1
		}
		return float64(from.Time.Time().Sub(p.to.Time.Time())) / float64(whole)
	}
	for i, step := range p.Steps {
		if !step.Moves {
			continue
		}
		c := step.checkpoint
		sum := 0.0
		if c.Shared {
			sum = share(c.Position)
		} else {
			sum = float64(partitions-len(c.Positions)) * share(c.Position)
			for _, at := range c.Positions {
				sum += share(at)
			}
		}
		events := int64(sum*float64(entries)/float64(partitions) + 0.5)
		p.Steps[i].Events = &events
	}
	return nil
}

// Moves returns how many checkpoints move.
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
		return fault.Newf(fault.CheckpointRewind, "subscriber %q is at %s, which is not after %s", p.Subscriber, p.Steps[0].From, p.To)
	case p.Moves() == 0:
		return fault.Newf(fault.CheckpointRewind, "subscriber %q is nowhere after %s (%s): there is nothing to repeat", p.Subscriber, p.To.Time.Format(time.RFC3339), p.To)
	}
	return nil
}

// Apply executes the plan, one checkpoint after the other, and returns the new checkpoints. A
// checkpoint that has moved since the plan is moved from its present position. by and why go into
// the history.
func (p *RewindPlan) Apply(ctx context.Context, s checkpoint.Rewinder, by, why string) ([]checkpoint.Checkpoint, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	var written []checkpoint.Checkpoint
	for _, step := range p.Steps {
		if !step.Moves {
			continue
		}
		c, err := s.Rewind(ctx, step.checkpoint.Key, p.to, by, why)
		if errors.Is(err, checkpoint.ErrForward) {
			err = fault.New(fault.CheckpointRewind, err)
		}
		if err != nil {
			return written, fmt.Errorf("%d of %d checkpoints are rewound: %w", len(written), p.Moves(), err)
		}
		written = append(written, c)
	}
	return written, nil
}

// Notice returns the notice of a rewind for the nodes, from the result of Apply, so that the node
// that serves the subscriber moves it at once.
func (p *RewindPlan) Notice(written []checkpoint.Checkpoint, by string) notice.Notice {
	var generation uint64
	for _, c := range written {
		generation = max(generation, c.Generation)
	}
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning, At: time.Now().UTC(), Node: by,
		Text:   fmt.Sprintf("%s has moved subscriber %s back to %s: what follows is redelivered", by, p.Subscriber, p.To.Time.Format(time.RFC3339)),
		Fields: map[string]any{"subscriber": p.Subscriber, "generation": generation},
	}
}

// ReadOrigin reads the origin. That there is none is the fault ClusterUnknown: an operator looks
// for checkpoints in the wrong place.
func ReadOrigin(ctx context.Context, s checkpoint.OriginKeeper) (checkpoint.Origin, error) {
	o, err := s.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		err = fault.New(fault.ClusterUnknown, err)
	}
	return o, err
}
