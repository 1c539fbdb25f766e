package preflight

import (
	"fmt"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// An etcdMember is the status of one etcd endpoint.
type etcdMember struct {
	Endpoint, Version string
	Leader            bool // it knows one
	Size, Quota       int64
	Err               error // it does not answer
}

// nearQuota is the share of its quota from which an etcd is nearly full.
const nearQuota = 0.8

// judgeEtcd judges the endpoints and the alarms that are raised. Without a leader anywhere nothing
// can be written.
func judgeEtcd(members []etcdMember, alarms []string) finding {
	if len(alarms) > 0 {
		return failure(fault.EtcdAlarm, "raised: %s", strings.Join(alarms, ", "))
	}
	var bad []string
	leader := false
	for _, m := range members {
		switch {
		case m.Err != nil:
			bad = append(bad, fmt.Sprintf("%s does not answer (%v)", m.Endpoint, m.Err))
		case !m.Leader:
			bad = append(bad, m.Endpoint+" has no leader")
		default:
			leader = true
		}
	}
	switch {
	case !leader:
		return failure(fault.EtcdMember, "%s", strings.Join(bad, "; "))
	case len(bad) > 0:
		return warning(fault.EtcdMember, "%s", strings.Join(bad, "; "))
	}
	for _, m := range members {
		if m.Quota > 0 && float64(m.Size) > nearQuota*float64(m.Quota) {
			return warning(fault.EtcdAlarm, "%s has used %.0f %% of its quota", m.Endpoint, 100*float64(m.Size)/float64(m.Quota))
		}
	}
	return fine("%d of %d endpoints answer, version %s", len(members), len(members), members[0].Version)
}

// manyRevisions is how many revisions an etcd with automatic compaction does not keep: a node makes
// at most two a second.
const manyRevisions = 1_000_000

// judgeCompaction judges whether etcd compacts by itself, which it does not report: by whether its
// first revision still exists, and the one manyRevisions ago.
func judgeCompaction(revision int64, keepsFirst, keepsMany bool) finding {
	switch {
	case keepsFirst:
		return warning(fault.EtcdCompaction, "every one of its %d revisions is still there", revision)
	case keepsMany:
		return warning(fault.EtcdCompaction, "the last %d revisions are still there", manyRevisions)
	}
	return fine("it has compacted")
}
