package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// holders lists the owners of partitions, and the members of a cluster, which may own some at any
// time.
func (r *Registry) holders(ctx context.Context) (holders []holder, err error) {
	for _, prefix := range []string{r.client.keys.owners(), r.client.keys.members()} {
		resp, err := r.etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return nil, fmt.Errorf("list owners: %w", withCode(err))
		}
		holders = append(holders, holdersOf(resp.Kvs)...)
	}
	return holders, nil
}

// evict ends the claims of holders: their leases, and keys without one as far as they have not been
// written since.
func (r *Registry) evict(ctx context.Context, holders []holder) error {
	revoked := make(map[clientv3.LeaseID]bool)
	for _, h := range holders {
		var err error
		switch {
		case h.Lease == clientv3.NoLease:
			err = retryUncertain(ctx, func() error {
				_, err := r.etcd.Txn(ctx).
					If(clientv3.Compare(clientv3.ModRevision(h.Key), "=", h.Revision)).
					Then(clientv3.OpDelete(h.Key)).
					Commit()
				return err
			})
		case !revoked[h.Lease]:
			revoked[h.Lease] = true
			err = revokeLease(ctx, r.client, h.Lease)
		}
		if err != nil {
			return fmt.Errorf("end the claim of node %q, process %s: %w", h.Node, h.Process, withCode(err))
		}
	}
	return nil
}
