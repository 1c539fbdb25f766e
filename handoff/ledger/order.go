package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
)

// An Order asks for a handoff.
type Order struct {
	Partition change.Partition
	// To is the node that is to get it.
	To string
	// Cause says what for, By who asks.
	Cause, By string
	// AllowOlder lets the partition go to a node of an older version.
	AllowOlder bool
	// Silent is for how long nothing was heard of To, as far as who asks has listened; SilentFor is from when on that counts as
	// detached. 0 does not look at it.
	Silent, SilentFor time.Duration
}

// Begin has a handoff begun, if it makes sense as the view has it. What it refuses is a fault; of two who ask at once the second is
// refused.
func (o Order) Begin(ctx context.Context, v roster.View, k Keeper) (Record, error) {
	r, err := o.Record(v)
	if err != nil {
		return Record{}, err
	}
	r.Started = time.Now().UTC()
	switch r, err := k.Prepare(ctx, r); {
	case errors.Is(err, ErrMoving):
		return Record{}, fault.New(fault.HandoffMoving, fmt.Errorf("partition %d: %w", o.Partition, err))
	case errors.Is(err, ErrStale):
		return Record{}, fault.Newf(fault.HandoffNoOwner, "partition %d has changed its owner meanwhile", o.Partition)
	case err != nil:
		return Record{}, fmt.Errorf("prepare the handoff of partition %d: %w", o.Partition, err)
	default:
		return r, nil
	}
}

// Record returns the handoff that the order asks for, or the fault that says why there cannot be one.
func (o Order) Record(v roster.View) (Record, error) {
	if int(o.Partition) >= len(v.Owners) {
		return Record{}, fault.Newf(fault.CommandBadArgument, "partition %d of %d", o.Partition, len(v.Owners))
	}
	owner := v.Owners[o.Partition]
	if owner.Process == "" {
		return Record{}, fault.Newf(fault.HandoffNoOwner, "nobody owns partition %d", o.Partition)
	}
	if owner.Node == o.To {
		return Record{}, fault.Newf(fault.HandoffOwner, "node %q owns partition %d", o.To, o.Partition)
	}
	to, err := o.target(v)
	if err != nil {
		return Record{}, err
	}
	if older, ok := olderThan(to.Version, versionOf(v, owner.Node)); ok && older && !o.AllowOlder {
		return Record{}, fault.Newf(fault.HandoffOlder, "node %q runs %s, node %q runs %s", o.To, to.Version, owner.Node, versionOf(v, owner.Node))
	}
	return Record{
		Partition: o.Partition, From: Party{owner.Node, owner.Process}, To: Party{to.Node, to.Process}, Epoch: owner.Epoch,
		Cause: o.Cause, By: o.By, Phase: Prepared,
	}, nil
}

// target returns the seat of the node that is to get the partition, if it can.
func (o Order) target(v roster.View) (roster.Seat, error) {
	i := slices.IndexFunc(v.Members, func(s roster.Seat) bool { return s.Node == o.To })
	if i < 0 {
		if slices.Contains(v.Plan.Owners, o.To) || slices.ContainsFunc(v.Owners, func(w roster.Owner) bool { return w.Node == o.To }) {
			return roster.Seat{}, fault.Newf(fault.HandoffDead, "node %q is in the plan but not there", o.To)
		}
		return roster.Seat{}, fault.Newf(fault.HandoffUnknown, "node %q", o.To)
	}
	to := v.Members[i]
	_, drained := v.Wishes.Drained[o.To]
	etcd, told := to.Checks[roster.CheckEtcd]
	switch {
	case to.Garbled != nil:
		return roster.Seat{}, fault.Newf(fault.HandoffUnfit, "node %q: its heartbeat cannot be read: %w", o.To, to.Garbled)
	case to.Kind == roster.Gateway:
		return roster.Seat{}, fault.Newf(fault.HandoffUnknown, "%q is a gateway", o.To)
	case o.SilentFor > 0 && o.Silent >= o.SilentFor:
		return roster.Seat{}, fault.Newf(fault.HandoffDetached, "nothing was heard of node %q for %s", o.To, o.Silent)
	case told && !etcd:
		return roster.Seat{}, fault.Newf(fault.HandoffDetached, "node %q has lost its store", o.To)
	case to.Status != roster.Healthy:
		return roster.Seat{}, fault.Newf(fault.HandoffUnfit, "node %q is %s", o.To, to.Status)
	case drained:
		return roster.Seat{}, fault.Newf(fault.HandoffUnfit, "node %q is to be empty: an operator drains it", o.To)
	case to.Count != 0 && to.Count != len(v.Owners):
		return roster.Seat{}, fault.Newf(fault.HandoffUnfit, "node %q is configured for %d partitions, not %d", o.To, to.Count, len(v.Owners))
	}
	return to, nil
}

func versionOf(v roster.View, node string) string {
	if i := slices.IndexFunc(v.Members, func(s roster.Seat) bool { return s.Node == node }); i >= 0 {
		return v.Members[i].Version
	}
	return ""
}

// olderThan compares versions of the form v1.2.3; what stands behind a hyphen or a plus does not count. Others cannot be compared.
func olderThan(version, than string) (older, known bool) {
	a, aOK := numbers(version)
	b, bOK := numbers(than)
	return slices.Compare(a, b) < 0, aOK && bOK
}

func numbers(version string) (parts []uint64, ok bool) {
	version, ok = strings.CutPrefix(version, "v")
	if !ok {
		return nil, false
	}
	if end := strings.IndexAny(version, "-+"); end >= 0 {
		version = version[:end]
	}
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return nil, false
		}
		parts = append(parts, n)
	}
	return parts, true
}
