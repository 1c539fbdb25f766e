package handoff

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// check returns the owner of the partition, or the fault that says why it cannot be handed over.
// The recipient has sent no heartbeat for silent; limit is too long.
func (r Request) check(v cluster.View, silent, limit time.Duration) (owner cluster.Owner, err error) {
	if int(r.Partition) >= len(v.Owners) {
		return owner, fault.Newf(fault.CommandBadArgument, "partition %d of %d", r.Partition, len(v.Owners))
	}
	owner = v.Owners[r.Partition]
	if owner.Process == "" {
		return owner, fault.Newf(fault.HandoffNoOwner, "partition %d has no owner", r.Partition)
	}
	if owner.Node == r.To {
		return owner, fault.Newf(fault.HandoffOwner, "node %q owns partition %d", r.To, r.Partition)
	}
	to, err := r.recipient(v, silent, limit)
	if err != nil {
		return owner, err
	}
	if older, ok := olderThan(to.Version, versionOf(v, owner.Node)); ok && older && !r.AllowOlder {
		return owner, fault.Newf(fault.HandoffOlder, "node %q runs %s, node %q runs %s", r.To, to.Version, owner.Node, versionOf(v, owner.Node))
	}
	if pin, pinned := v.Directives.Pinned[r.Partition]; pinned {
		return owner, fault.Newf(fault.HandoffMoving, "partition %d is already directed to node %q by %q", r.Partition, pin.To, pin.By)
	}
	return owner, nil
}

// recipient returns the member that should own the partition, or the fault that says why it cannot.
func (r Request) recipient(v cluster.View, silent, limit time.Duration) (cluster.Member, error) {
	i := slices.IndexFunc(v.Members, func(s cluster.Member) bool { return s.Node == r.To })
	if i < 0 {
		if slices.Contains(v.Plan.Owners, r.To) || slices.ContainsFunc(v.Owners, func(w cluster.Owner) bool { return w.Node == r.To }) {
			return cluster.Member{}, fault.Newf(fault.HandoffDead, "node %q is in the plan but not running", r.To)
		}
		return cluster.Member{}, fault.Newf(fault.HandoffUnknown, "node %q", r.To)
	}
	to := v.Members[i]
	_, drained := v.Directives.Drained[r.To]
	etcd, told := to.Checks[cluster.CheckEtcd]
	switch {
	case to.Garbled != nil:
		return cluster.Member{}, fault.Newf(fault.HandoffUnfit, "node %q: its heartbeat cannot be read: %w", r.To, to.Garbled)
	case to.Kind == cluster.KindGateway:
		return cluster.Member{}, fault.Newf(fault.HandoffUnknown, "%q is a gateway", r.To)
	case silent >= limit:
		return cluster.Member{}, fault.Newf(fault.HandoffDetached, "node %q has sent no heartbeat for %s", r.To, silent.Round(time.Second))
	case told && !etcd:
		return cluster.Member{}, fault.Newf(fault.HandoffDetached, "node %q cannot reach its store", r.To)
	case to.Status != cluster.StatusHealthy:
		return cluster.Member{}, fault.Newf(fault.HandoffUnfit, "node %q is %s", r.To, to.Status)
	case drained:
		return cluster.Member{}, fault.Newf(fault.HandoffUnfit, "node %q is being drained", r.To)
	case to.Count != 0 && to.Count != len(v.Owners):
		return cluster.Member{}, fault.Newf(fault.HandoffUnfit, "node %q is configured for %d partitions, not %d", r.To, to.Count, len(v.Owners))
	}
	return to, nil
}

func versionOf(v cluster.View, node string) string {
	if i := slices.IndexFunc(v.Members, func(s cluster.Member) bool { return s.Node == node }); i >= 0 {
		return v.Members[i].Version
	}
	return ""
}

// olderThan compares versions of the form v1.2.3, without the part after a hyphen or a plus. Others
// cannot be compared.
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
