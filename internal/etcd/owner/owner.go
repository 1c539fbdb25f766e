package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"mongostream/cluster"
	"mongostream/internal/etcd"
)

// A storedOwner is the value of an owner key.
type storedOwner struct {
	Node      string    `json:"node"`
	Process   string    `json:"process"`
	ClaimedAt time.Time `json:"claimed_at"` // by the owner's clock; informative only
}

// An owner is what an owner key says.
type owner struct {
	node, process string
	key           string
	revision      int64
	lease         clientv3.LeaseID // 0 for a key that lives for ever, which is not of our making
}

// encodeOwner returns the value of the owner keys that a member claims.
func encodeOwner(m cluster.Member, at time.Time) (string, error) {
	value, err := json.Marshal(storedOwner{Node: m.Node, Process: m.Process, ClaimedAt: at.UTC()})
	if err != nil {
		return "", fmt.Errorf("encode owner: %w", err)
	}
	return string(value), nil
}

// ownerOf reads an owner key. One whose value cannot be read is owned all the same, by nobody known.
func ownerOf(kv *mvccpb.KeyValue) owner {
	o := owner{key: string(kv.Key), revision: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
	var stored storedOwner
	if err := json.Unmarshal(kv.Value, &stored); err == nil {
		o.node, o.process = stored.Node, stored.Process
	}
	return o
}

// owners lists the owners of all partitions.
func (r *Registry) owners(ctx context.Context) ([]owner, error) {
	resp, err := r.etcd.Get(ctx, r.client.Keys().Owners(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list owners: %w", etcd.Named(err))
	}
	owners := make([]owner, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		owners[i] = ownerOf(kv)
	}
	return owners, nil
}

// evict ends the claims of owners: their leases, and keys without one as far as they have not been written since.
func (r *Registry) evict(ctx context.Context, owners []owner) error {
	revoked := make(map[clientv3.LeaseID]bool)
	for _, o := range owners {
		var err error
		switch {
		case o.lease == clientv3.NoLease:
			_, err = r.etcd.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(o.key), "=", o.revision)).
				Then(clientv3.OpDelete(o.key)).
				Commit()
		case !revoked[o.lease]:
			revoked[o.lease] = true
			err = r.revoke(ctx, o.lease)
		}
		if err != nil {
			return fmt.Errorf("end the claim of node %q, process %s: %w", o.node, o.process, etcd.Named(err))
		}
	}
	return nil
}

// revoke ends a lease with all its keys; that it has ended is no error.
func (r *Registry) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	if _, err := r.etcd.Revoke(ctx, lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	return nil
}

// held says that an owner is in the way, and for how long unless it renews its lease.
func (r *Registry) held(ctx context.Context, o owner) error {
	held := &cluster.HeldError{Node: o.node, Process: o.process}
	if o.lease == clientv3.NoLease {
		return held
	}
	left, err := r.etcd.TimeToLive(ctx, o.lease)
	if err != nil {
		return fmt.Errorf("look at the lease of node %q, process %s: %w", o.node, o.process, etcd.Named(err))
	}
	held.TTL = time.Duration(max(left.TTL, 0)) * time.Second
	return held
}
