package etcd

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Keys are the names of the keys of one cluster.
type Keys struct {
	root string // ends with a slash
}

func newKeys(prefix, cluster string) Keys {
	return Keys{root: strings.TrimRight(prefix, "/") + "/" + cluster + "/"}
}

// Origin is the key of the origin.
func (k Keys) Origin() string { return k.root + "origin" }

// Backend is the key of the origin's backend: the origin's key is a prefix of it, so that both are read at once.
func (k Keys) Backend() string { return k.Origin() + "/backend" }

// Notices is the prefix of the keys of notices.
func (k Keys) Notices() string { return k.root + "notice/" }

// Members is the prefix of the keys of members' heartbeats.
func (k Keys) Members() string { return k.root + "member/" }

// Member is the key of a member's heartbeat. The name is escaped as a segment of a path: no two names give one key.
func (k Keys) Member(node string) string { return k.Members() + url.PathEscape(node) }

// Plan is the key of the plan.
func (k Keys) Plan() string { return k.root + "plan" }

// Pins is the prefix of the keys that say where operators want partitions.
func (k Keys) Pins() string { return k.root + "wish/pin/" }

// Pin is the key that says where operators want a partition.
func (k Keys) Pin(p change.Partition) string { return k.Pins() + padded(p) }

// Drains is the prefix of the keys of nodes that operators want to have nothing.
func (k Keys) Drains() string { return k.root + "wish/drain/" }

// Drain is the key of such a node, whose name is escaped as in Member.
func (k Keys) Drain(node string) string { return k.Drains() + url.PathEscape(node) }

// Wishes is the prefix of the keys of both.
func (k Keys) Wishes() string { return k.root + "wish/" }

// Election is the prefix of the keys of those who want to lead, without its last slash.
func (k Keys) Election() string { return k.root + "leader" }

// Owners is the prefix of the keys that say who owns the partitions.
func (k Keys) Owners() string { return k.root + "owner/" }

// Owner is the key that says who owns a partition.
func (k Keys) Owner(p change.Partition) string { return k.Owners() + padded(p) }

// Handoffs is the prefix of the keys of handoffs, each of which begins with Handoff of its partition.
func (k Keys) Handoffs() string { return k.root + "handoff/" }

// Handoff is the key of a partition's handoff.
func (k Keys) Handoff(p change.Partition) string { return k.Handoffs() + padded(p) }

// checkpoints is the prefix of the keys of all checkpoints; below it are those of exclusive subscribers and those of shared ones.
func (k Keys) checkpoints() string { return k.root + "checkpoint/" }
func (k Keys) exclusive() string   { return k.checkpoints() + "exclusive/" }
func (k Keys) shared() string      { return k.checkpoints() + "shared/" }

// partitions is the prefix of the keys of a shared subscriber's checkpoints.
func (k Keys) partitions(subscriber string) string {
	return k.shared() + url.PathEscape(subscriber) + "/"
}

// checkpoint is the key of a checkpoint. The subscriber's name is escaped as in Member.
func (k Keys) checkpoint(of checkpoint.Key) string {
	if of.Shared {
		return k.partitions(of.Subscriber) + padded(of.Partition)
	}
	return k.exclusive() + url.PathEscape(of.Subscriber)
}

// history is the prefix of the keys of the history of a checkpoint with a key, entry one of those: a ring of places.
func (k Keys) history(checkpoint string) string {
	return k.root + "history/" + strings.TrimPrefix(checkpoint, k.checkpoints()) + "/"
}

func (k Keys) entry(checkpoint string, slot int) string {
	return fmt.Sprintf("%s%02d", k.history(checkpoint), slot)
}

// histories is the prefix of the keys of the histories of a shared subscriber.
func (k Keys) histories(subscriber string) string {
	return k.root + "history/" + strings.TrimPrefix(k.partitions(subscriber), k.checkpoints())
}

// gaps is the prefix of the keys of the gap log.
func (k Keys) gaps() string { return k.root + "gap/" }

// padded writes a partition so that keys sort as partitions do.
func padded(p change.Partition) string { return fmt.Sprintf("%05d", p) }

// PartitionOf returns the partition that a key below a prefix names.
func PartitionOf(prefix, key string) (change.Partition, error) {
	digits := strings.TrimPrefix(key, prefix)
	n, err := strconv.ParseUint(digits, 10, 32)
	if p := change.Partition(n); err == nil && n < change.MaxPartitions && padded(p) == digits {
		return p, nil
	}
	return 0, fault.Newf(fault.CheckpointCorrupt, "%s: the key names no partition", key)
}
