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

// keys are the names of the keys of one cluster.
type keys struct {
	root string // ends with a slash
}

func newKeys(prefix, cluster string) keys {
	return keys{root: strings.TrimRight(prefix, "/") + "/" + cluster + "/"}
}

// origin is the key of the origin.
func (k keys) origin() string { return k.root + "origin" }

// backend is the key of the origin's backend: the origin's key is a prefix of it, so that both are
// read at once.
func (k keys) backend() string { return k.origin() + "/backend" }

// notices is the prefix of the keys of notices.
func (k keys) notices() string { return k.root + "notice/" }

// members is the prefix of the keys of members' heartbeats.
func (k keys) members() string { return k.root + "member/" }

// member is the key of a member's heartbeat. The name is escaped as a segment of a path: no two
// names give one key.
func (k keys) member(node string) string { return k.members() + url.PathEscape(node) }

// plan is the key of the plan.
func (k keys) plan() string { return k.root + "plan" }

// pins is the prefix of the keys that say where operators want partitions.
func (k keys) pins() string { return k.root + "wish/pin/" }

// pin is the key that says where operators want a partition.
func (k keys) pin(p change.Partition) string { return k.pins() + padded(p) }

// drains is the prefix of the keys of nodes that operators want to have nothing.
func (k keys) drains() string { return k.root + "wish/drain/" }

// drain is the key of such a node, whose name is escaped as in Member.
func (k keys) drain(node string) string { return k.drains() + url.PathEscape(node) }

// directives is the prefix of the keys of both.
func (k keys) directives() string { return k.root + "wish/" }

// election is the prefix of the keys of those who want to lead, without its last slash.
func (k keys) election() string { return k.root + "leader" }

// owners is the prefix of the keys of the partitions' owners.
func (k keys) owners() string { return k.root + "owner/" }

// owner is the key of a partition's owner.
func (k keys) owner(p change.Partition) string { return k.owners() + padded(p) }

// checkpoints is the prefix of the keys of all checkpoints; below it are those of exclusive
// subscribers and those of shared ones.
func (k keys) checkpoints() string { return k.root + "checkpoint/" }
func (k keys) exclusive() string   { return k.checkpoints() + "exclusive/" }
func (k keys) shared() string      { return k.checkpoints() + "shared/" }

// partitions is the prefix of the keys of a shared subscriber's checkpoints.
func (k keys) partitions(subscriber string) string {
	return k.shared() + url.PathEscape(subscriber) + "/"
}

// checkpoint is the key of a checkpoint. The subscriber's name is escaped as in Member.
func (k keys) checkpoint(of checkpoint.Key) string {
	if of.Shared {
		return k.partitions(of.Subscriber) + padded(of.Partition)
	}
	return k.exclusive() + url.PathEscape(of.Subscriber)
}

// owned is the prefix of the keys of an identity's exclusive subscribers, whose names begin with
// its part; isOwned reports whether a key is one.
func (k keys) owned(owner string) string { return k.exclusive() + url.PathEscape(owner) }

func (k keys) isOwned(key string) bool {
	return strings.Contains(strings.TrimPrefix(key, k.exclusive()), url.PathEscape("/"))
}

// history is the prefix of the keys of the history of a checkpoint with a key, entry one of those:
// a ring of places.
func (k keys) history(checkpoint string) string {
	return k.root + "history/" + strings.TrimPrefix(checkpoint, k.checkpoints()) + "/"
}

func (k keys) entry(checkpoint string, slot int) string {
	return fmt.Sprintf("%s%02d", k.history(checkpoint), slot)
}

// histories is the prefix of the keys of the histories of a shared subscriber.
func (k keys) histories(subscriber string) string {
	return k.root + "history/" + strings.TrimPrefix(k.partitions(subscriber), k.checkpoints())
}

// gaps is the prefix of the keys of the gap log.
func (k keys) gaps() string { return k.root + "gap/" }

// supervisor is the prefix of the supervisor's keys.
func (k keys) supervisor() string { return k.root + "supervisor/" }

// padded writes a partition so that keys sort as partitions do.
func padded(p change.Partition) string { return fmt.Sprintf("%05d", p) }

// partitionOf returns the partition that a key below a prefix names.
func partitionOf(prefix, key string) (change.Partition, error) {
	digits := strings.TrimPrefix(key, prefix)
	n, err := strconv.ParseUint(digits, 10, 32)
	if p := change.Partition(n); err == nil && n < change.MaxPartitions && padded(p) == digits {
		return p, nil
	}
	return 0, fault.Newf(fault.CheckpointCorrupt, "%s: the key names no partition", key)
}
