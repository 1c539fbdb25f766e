package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
)

// A Registry keeps the ownership of partitions in keys under one lease. An origin must have been
// created before.
type Registry struct {
	client *Client
	etcd   *clientv3.Client

	mu struct {
		sync.Mutex

		claim *claim // the current one
	}
}

var _ cluster.Registry = (*Registry)(nil)

// NewRegistry makes the registry of the client's owner keys.
func NewRegistry(client *Client) *Registry {
	return &Registry{client: client, etcd: client.etcd}
}

// Claim implements [cluster.Registry]. A claim made before is released first: epochs are always
// new. The ttl is rounded up to seconds, and etcd raises it where it is below its least. The origin
// must be of n partitions, else it is the fault CheckpointPartitions; without an origin it is
// [checkpoint.ErrNoOrigin]. If the origin changes meanwhile, it returns why the process cannot go
// on under it.
func (r *Registry) Claim(
	ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool,
) ([]change.Epoch, error) {
	if err := r.Release(ctx); err != nil {
		return nil, err
	}
	stands, err := r.client.origin(ctx, n)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrLost, err)
	}
	if err != nil {
		return nil, err
	}
	if err := r.MakeWay(ctx, m, takeOver); err != nil {
		return nil, err
	}
	value, err := encodeOwner(m.Node, m.Process, time.Now(), "")
	if err != nil {
		return nil, err
	}
	granted, _, err := grantLease(ctx, r.client, ttl)
	if err != nil {
		return nil, err
	}
	c := &claim{Registry: r, stands: stands, lease: granted, renewer: newLeaseRenewer(r.client, granted), process: m.Process, value: value}
	c.keys.revisions = make([]int64, n)
	all := make([]change.Partition, n)
	for p := range all {
		all[p] = change.Partition(p)
	}
	epochs, err := c.take(ctx, all)
	if err != nil {
		return nil, errors.Join(r.client.moved(ctx, n, err), c.undo(ctx))
	}
	r.setClaim(c)
	return epochs, nil
}

// MakeWay makes sure that no partition has an owner. It returns a *cluster.HeldError if another
// process owns one, or is a member of a cluster and may own some at any time; with takeOver it ends
// that claim or membership instead. It also ends the remains of an earlier claim of this process.
func (r *Registry) MakeWay(ctx context.Context, m cluster.Identity, takeOver bool) error {
	holders, err := r.holders(ctx)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if h.Process != m.Process && !takeOver {
			return h.held(ctx, r.client)
		}
	}
	return r.evict(ctx, holders)
}

// Renew implements [cluster.Registry].
func (r *Registry) Renew(ctx context.Context) (ttl time.Duration, taken []change.Partition, err error) {
	c := r.claim()
	if c == nil {
		return 0, nil, cluster.ErrLost
	}
	life, err := c.renewer.Renew(ctx)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, nil, fmt.Errorf("lease %x: %w", int64(c.lease), cluster.ErrLost)
	}
	if err != nil {
		return 0, nil, err
	}
	taken, err = c.missing(ctx)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		return 0, nil, fmt.Errorf("an operator has adopted the marks: %w", cluster.ErrLost)
	}
	// The lease is valid even if the keys could not be read; the next renewal reads them again.
	return life, taken, nil
}

// Reclaim implements [cluster.Registry].
func (r *Registry) Reclaim(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error) {
	c := r.claim()
	if c == nil {
		return nil, cluster.ErrLost
	}
	epochs, err := c.take(ctx, partitions)
	if errors.Is(err, checkpoint.ErrOriginMoved) || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrLost, err)
	}
	return epochs, err
}

// Release implements [cluster.Registry]. Without a claim it does nothing.
func (r *Registry) Release(ctx context.Context) error {
	c := r.claim()
	if c == nil {
		return nil
	}
	if err := revokeLease(ctx, r.client, c.lease); err != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	c.renewer.Close()
	r.setClaim(nil)
	return nil
}

func (r *Registry) claim() *claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.claim
}

func (r *Registry) setClaim(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.claim = c
}

// A claim is under way or complete.
type claim struct {
	*Registry

	stands  originState
	lease   clientv3.LeaseID
	renewer *leaseRenewer
	process string
	value   string

	keys struct {
		sync.Mutex

		revisions []int64 // of the owner keys as they were put, by partition; 0 before
	}
}

func (c *claim) revision(p change.Partition) int64 {
	c.keys.Lock()
	defer c.keys.Unlock()
	return c.keys.revisions[p]
}

func (c *claim) note(p change.Partition, revision int64) {
	c.keys.Lock()
	defer c.keys.Unlock()
	c.keys.revisions[p] = revision
}

// take puts the owner keys of partitions. With an error some may have been put.
func (c *claim) take(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error) {
	epochs := make([]change.Epoch, 0, len(partitions))
	for chunk := range slices.Chunk(partitions, maxNested) {
		var revisions []int64
		err := retryUncertain(ctx, func() (err error) {
			revisions, err = c.takeSome(ctx, chunk)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("claim partitions: %w", withCode(err))
		}
		for i, p := range chunk {
			c.note(p, revisions[i])
			epochs = append(epochs, change.Epoch{Incarnation: c.stands.Incarnation, Revision: uint64(revisions[i])})
		}
	}
	return epochs, nil
}

// takeSome puts owner keys in one transaction, and returns the revisions of all. It puts keys that
// do not exist, and those that are unchanged since this claim put them. Any other key may be our
// own, from an earlier attempt whose reply was lost: then it has our lease, which no other claim
// has.
func (c *claim) takeSome(ctx context.Context, partitions []change.Partition) ([]int64, error) {
	puts := make([]clientv3.Op, len(partitions))
	for i, p := range partitions {
		key := c.client.keys.owner(p)
		put := []clientv3.Op{clientv3.OpPut(key, c.value, clientv3.WithLease(c.lease))}
		puts[i] = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", c.revision(p))}, put,
			[]clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", 0)}, put,
				[]clientv3.Op{clientv3.OpGet(key)})})
	}
	resp, err := c.client.nest(ctx, c.stands, puts)
	if err != nil {
		return nil, err
	}
	revisions := make([]int64, len(partitions))
	for i := range revisions {
		revisions[i] = resp.Header.Revision
		put := resp.Responses[i].GetResponseTxn()
		if put.Succeeded {
			continue
		}
		if put = put.Responses[0].GetResponseTxn(); put.Succeeded {
			continue
		}
		there := holderOf(put.Responses[0].GetResponseRange().Kvs[0])
		if there.Lease != c.lease || there.Process != c.process {
			return nil, there.held(ctx, c.client)
		}
		revisions[i] = there.Revision
	}
	return revisions, nil
}

// missing returns the partitions whose owner keys are not as this claim put them. It only counts
// the keys first: if their number is right they are all this claim's, because no other process puts
// any while these exist.
func (c *claim) missing(ctx context.Context) ([]change.Partition, error) {
	prefix := c.client.keys.owners()
	resp, err := c.client.nest(ctx, c.stands, []clientv3.Op{clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())})
	if err != nil || resp.Responses[0].GetResponseRange().Count == int64(len(c.keys.revisions)) {
		return nil, err
	}
	list, err := c.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	there := make(map[string]int64, len(list.Kvs))
	for _, kv := range list.Kvs {
		there[string(kv.Key)] = kv.ModRevision
	}
	var missing []change.Partition
	for i := range c.keys.revisions {
		if p := change.Partition(i); there[c.client.keys.owner(p)] != c.revision(p) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// undo returns the claimed partitions, without waiting for the lease to expire.
func (c *claim) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := revokeLease(ctx, c.client, c.lease); err != nil {
		return fmt.Errorf("give up claim: %w", err)
	}
	return nil
}
