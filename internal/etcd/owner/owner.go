package owner

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/lease"
)

// holders lists who owns partitions, and who is a member of a cluster and may own some at any time.
func (r *Registry) holders(ctx context.Context) (holders []lease.Holder, err error) {
	for _, prefix := range []string{r.client.Keys().Owners(), r.client.Keys().Members()} {
		resp, err := r.etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return nil, fmt.Errorf("list owners: %w", etcd.Named(err))
		}
		holders = append(holders, lease.All(resp.Kvs)...)
	}
	return holders, nil
}

// evict ends the claims of holders: their leases, and keys without one as far as they have not been written since.
func (r *Registry) evict(ctx context.Context, holders []lease.Holder) error {
	revoked := make(map[clientv3.LeaseID]bool)
	for _, h := range holders {
		var err error
		switch {
		case h.Lease == clientv3.NoLease:
			err = etcd.Insist(ctx, func() error {
				_, err := r.etcd.Txn(ctx).
					If(clientv3.Compare(clientv3.ModRevision(h.Key), "=", h.Revision)).
					Then(clientv3.OpDelete(h.Key)).
					Commit()
				return err
			})
		case !revoked[h.Lease]:
			revoked[h.Lease] = true
			err = lease.Revoke(ctx, r.client, h.Lease)
		}
		if err != nil {
			return fmt.Errorf("end the claim of node %q, process %s: %w", h.Node, h.Process, etcd.Named(err))
		}
	}
	return nil
}
