package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
)

// A holder is who a key says that holds it.
type holder struct {
	Node, Process string // empty where the value cannot be read
	Key           string
	Revision      int64            // at which the key was written
	Lease         clientv3.LeaseID // 0 for a key without a lease, which is not ours
	Trace         string           // of an owner, as in [cluster.Owner]
}

// ownerValue is the value of an owner key.
type ownerValue struct {
	Node      string    `json:"node"`
	Process   string    `json:"process"`
	ClaimedAt time.Time `json:"claimed_at"` // by the owner's clock; informative only
	// Trace is the traceparent of the handoff, if it is recorded.
	Trace string `json:"traceparent,omitempty"`
}

// encodeOwner returns the value of the owner keys that a process claims.
func encodeOwner(node, process string, at time.Time, trace string) (string, error) {
	value, err := json.Marshal(ownerValue{Node: node, Process: process, ClaimedAt: at.UTC(), Trace: trace})
	if err != nil {
		return "", fmt.Errorf("encode owner: %w", err)
	}
	return string(value), nil
}

// holderOf returns the holder of a key: of an owner's key, or of a member's heartbeat. A key with
// an unreadable value is held, too, by an unknown holder.
func holderOf(kv *mvccpb.KeyValue) holder {
	h := holder{Key: string(kv.Key), Revision: kv.ModRevision, Lease: clientv3.LeaseID(kv.Lease)}
	var s ownerValue
	if err := json.Unmarshal(kv.Value, &s); err == nil {
		h.Node, h.Process, h.Trace = s.Node, s.Process, s.Trace
	}
	return h
}

// holdersOf reads many keys.
func holdersOf(kvs []*mvccpb.KeyValue) []holder {
	holders := make([]holder, len(kvs))
	for i, kv := range kvs {
		holders[i] = holderOf(kv)
	}
	return holders
}

// held returns the *cluster.HeldError that says that a holder is in the way, and for how long
// unless it renews its lease.
func (h holder) held(ctx context.Context, c *Client) error {
	held := &cluster.HeldError{Node: h.Node, Process: h.Process}
	if h.Lease == clientv3.NoLease {
		return held
	}
	left, err := c.etcd.TimeToLive(ctx, h.Lease)
	if err != nil {
		return fmt.Errorf("look at the lease of node %q, process %s: %w", h.Node, h.Process, withCode(err))
	}
	held.TTL = time.Duration(max(left.TTL, 0)) * time.Second
	return held
}
