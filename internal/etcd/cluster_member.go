package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// Join implements [cluster.Store]. It first ends the remains of an earlier membership of the same
// process. It also returns a *cluster.HeldError if a single node owns everything. It rounds the ttl
// up to seconds, and etcd raises it to its minimum; renewals return the actual one. If the number
// of partitions differs from that of the origin or the heartbeat, it returns the fault
// CheckpointPartitions. If the origin changes meanwhile, it returns why the process cannot go on
// under it.
func (s *ClusterStore) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	if first.Count != 0 && first.Count != s.cfg.Partitions {
		return nil, fault.Newf(fault.CheckpointPartitions, "the cluster has %d partitions, node %q is configured for %d",
			s.cfg.Partitions, first.Node, first.Count)
	}
	stands, err := s.client.origin(ctx, s.cfg.Partitions)
	if err != nil {
		return nil, err
	}
	if err := s.makeWay(ctx, first); err != nil {
		return nil, err
	}
	value, err := encodeHeartbeat(first)
	if err != nil {
		return nil, err
	}
	id, _, err := grantLease(ctx, s.client, ttl)
	if err != nil {
		return nil, err
	}
	m := &membership{
		ClusterStore: s, stands: stands, key: s.keys.member(first.Node), node: first.Node, process: first.Process, lease: id,
		renewer: newLeaseRenewer(s.client, id),
	}
	err = retryUncertain(ctx, func() error { return m.sit(ctx, value) })
	if err == nil {
		m.claim, err = encodeOwner(first.Node, first.Process, time.Now(), "")
	}
	if err != nil {
		err = s.client.moved(ctx, s.cfg.Partitions, err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("join: %w", withCode(err)), m.Leave(ctx))
	}
	return m, nil
}

// makeWay returns an error if another process has the name, or if a process that is not a member
// owns partitions: a single node.
func (s *ClusterStore) makeWay(ctx context.Context, first cluster.Heartbeat) error {
	resp, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.members(), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.owners(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return fmt.Errorf("look who is there: %w", withCode(err))
	}
	members := make(map[clientv3.LeaseID]bool)
	own := make(map[clientv3.LeaseID]bool)
	for _, h := range holdersOf(resp.Responses[0].GetResponseRange().Kvs) {
		members[h.Lease] = true
		switch {
		case h.Key != s.keys.member(first.Node):
		case h.Lease == clientv3.NoLease:
			return fault.Newf(fault.ClusterCorrupt, "%s: the key is under no lease, so that no node of this name can join", h.Key)
		case h.Process != first.Process:
			h.Node = first.Node // whatever can be read of it
			return h.held(ctx, s.client)
		default:
			own[h.Lease] = true
		}
	}
	for _, h := range holdersOf(resp.Responses[1].GetResponseRange().Kvs) {
		switch {
		case members[h.Lease] || h.Lease == clientv3.NoLease:
		case h.Process != first.Process:
			return h.held(ctx, s.client)
		default:
			own[h.Lease] = true
		}
	}
	for id := range own {
		if err := revokeLease(ctx, s.client, id); err != nil {
			return err
		}
	}
	return nil
}

// A membership is a place in the cluster.
type membership struct {
	*ClusterStore

	stands        originState
	key           string // of the heartbeat
	node, process string
	lease         clientv3.LeaseID
	renewer       *leaseRenewer
	claim         string // the value of owner keys
}

var _ cluster.Membership = (*membership)(nil)

// sit puts the first heartbeat. If it is stored under our lease already, an earlier request has
// written it and its reply was lost.
func (m *membership) sit(ctx context.Context, value string) error {
	resp, err := m.etcd.Txn(ctx).
		If(m.client.is(m.stands), clientv3.Compare(clientv3.CreateRevision(m.key), "=", 0)).
		Then(clientv3.OpPut(m.key, value, clientv3.WithLease(m.lease))).
		Else(clientv3.OpGet(m.key)).
		Commit()
	if err != nil {
		return err
	}
	if resp.Succeeded {
		return nil
	}
	there := resp.Responses[0].GetResponseRange().Kvs
	if len(there) == 0 {
		return checkpoint.ErrOriginMoved
	}
	if h := holderOf(there[0]); h.Lease != m.lease {
		return h.held(ctx, m.client)
	}
	return nil
}

// txn makes a transaction as long as the membership lasts.
func (m *membership) txn(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := m.etcd.Txn(ctx).
		If(m.client.is(m.stands), clientv3.Compare(clientv3.LeaseValue(m.key), "=", m.lease)).
		Then(ops...).
		Commit()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && !resp.Succeeded {
		return nil, fmt.Errorf("the lease is gone, or an operator has deleted the heartbeat's key or adopted the marks: %w", cluster.ErrLeft)
	}
	return resp, err
}

// Renew implements [cluster.Membership]. If an operator has ended the membership but not the lease,
// the next heartbeat or claim reports it.
func (m *membership) Renew(ctx context.Context) (time.Duration, error) {
	life, err := m.renewer.Renew(ctx)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, fmt.Errorf("lease %x: %w", int64(m.lease), cluster.ErrLeft)
	}
	return life, err
}

// Beat implements [cluster.Membership].
func (m *membership) Beat(ctx context.Context, h cluster.Heartbeat) error {
	value, err := encodeHeartbeat(h)
	if err == nil {
		err = retryUncertain(ctx, func() error {
			_, err := m.txn(ctx, clientv3.OpPut(m.key, value, clientv3.WithLease(m.lease)))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write heartbeat: %w", withCode(err))
	}
	return nil
}

// Claim implements [cluster.Membership]. An owner whose key cannot be read has no name.
func (m *membership) Claim(ctx context.Context, partitions []change.Partition) ([]cluster.Owner, error) {
	owners := make([]cluster.Owner, 0, len(partitions))
	for chunk := range slices.Chunk(partitions, maxNested) {
		err := retryUncertain(ctx, func() error {
			some, err := m.claimSome(ctx, chunk)
			owners = append(owners, some...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("claim partitions: %w", withCode(err))
		}
	}
	return owners, nil
}

// claimSome claims as many partitions as fit into one transaction. An earlier request has written
// keys that are under our lease already.
func (m *membership) claimSome(ctx context.Context, partitions []change.Partition) ([]cluster.Owner, error) {
	claims := make([]clientv3.Op, len(partitions))
	for i, p := range partitions {
		if int(p) >= m.cfg.Partitions {
			return nil, fmt.Errorf("partition %d of %d", p, m.cfg.Partitions)
		}
		key := m.keys.owner(p)
		claims[i] = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, m.claim, clientv3.WithLease(m.lease))},
			[]clientv3.Op{clientv3.OpGet(key)})
	}
	resp, err := m.txn(ctx, claims...)
	if err != nil {
		return nil, err
	}
	owners := make([]cluster.Owner, len(partitions))
	for i := range owners {
		put := resp.Responses[i].GetResponseTxn()
		if put.Succeeded {
			owners[i] = cluster.Owner{Node: m.node, Process: m.process, Epoch: epochOf(m.stands, resp.Header.Revision)}
			continue
		}
		there := holderOf(put.Responses[0].GetResponseRange().Kvs[0])
		owners[i] = cluster.Owner{Node: there.Node, Process: there.Process, Epoch: epochOf(m.stands, there.Revision), Trace: there.Trace}
		if there.Lease != m.lease && there.Process == m.process {
			owners[i].Process = "" // not under this lease: a hand has written it
		}
	}
	return owners, nil
}

// Hand implements [cluster.Membership].
func (m *membership) Transfer(ctx context.Context, to cluster.Member, partitions []change.Partition, epochs []change.Epoch) ([]cluster.Owner, error) {
	owners := make([]cluster.Owner, 0, len(partitions))
	const most = maxNested - 2 // they are nested in one that asks for the other member
	for from := 0; from < len(partitions); from += most {
		end := min(from+most, len(partitions))
		err := retryUncertain(ctx, func() error {
			some, err := m.handSome(ctx, to, partitions[from:end], epochs[from:end])
			owners = append(owners, some...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("hand partitions over to node %q: %w", to.Node, withCode(err))
		}
	}
	return owners, nil
}

// handSome hands over as many as fit into one transaction. That the other owns one is the same,
// done by a request whose answer got lost.
func (m *membership) handSome(ctx context.Context, to cluster.Member, partitions []change.Partition, epochs []change.Epoch) ([]cluster.Owner, error) {
	seat, err := m.etcd.Get(ctx, m.keys.member(to.Node))
	if err != nil {
		return nil, err
	}
	if len(seat.Kvs) == 0 || seat.Kvs[0].Lease == 0 || memberOf(to.Node, seat.Kvs[0]).Process != to.Process {
		if _, err := m.txn(ctx); err != nil { // whose own membership has ended learns that first
			return nil, err
		}
		return nil, cluster.ErrAbsent
	}
	target := clientv3.LeaseID(seat.Kvs[0].Lease)
	claim, err := encodeOwner(to.Node, to.Process, time.Now(), cluster.TraceOf(ctx))
	if err != nil {
		return nil, err
	}
	puts := make([]clientv3.Op, len(partitions))
	for i, p := range partitions {
		key := m.keys.owner(p)
		mine := clientv3.Compare(clientv3.ModRevision(key), "=", int64(epochs[i].Revision))
		if m.stands.Fences(epochs[i]) {
			mine = clientv3.Compare(clientv3.ModRevision(key), "<", 0)
		}
		puts[i] = clientv3.OpTxn([]clientv3.Cmp{mine, clientv3.Compare(clientv3.LeaseValue(key), "=", m.lease)},
			[]clientv3.Op{clientv3.OpPut(key, claim, clientv3.WithLease(target))},
			[]clientv3.Op{clientv3.OpGet(key)})
	}
	there := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(m.keys.member(to.Node)), "=", target)}, puts, nil)
	resp, err := m.txn(ctx, there)
	if err != nil {
		return nil, err
	}
	handed := resp.Responses[0].GetResponseTxn()
	if !handed.Succeeded {
		return nil, cluster.ErrAbsent
	}
	owners := make([]cluster.Owner, len(partitions))
	for i := range owners {
		put := handed.Responses[i].GetResponseTxn()
		if put.Succeeded {
			owners[i] = cluster.Owner{Node: to.Node, Process: to.Process, Epoch: epochOf(m.stands, resp.Header.Revision)}
		} else if kvs := put.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			now := holderOf(kvs[0])
			owners[i] = cluster.Owner{Node: now.Node, Process: now.Process, Epoch: epochOf(m.stands, now.Revision)}
		}
	}
	return owners, nil
}

// Give implements [cluster.Membership].
func (m *membership) Return(ctx context.Context, partitions []change.Partition, epochs []change.Epoch) error {
	gifts := make([]clientv3.Op, 0, len(partitions))
	for i, p := range partitions {
		if key := m.keys.owner(p); !m.stands.Fences(epochs[i]) {
			gifts = append(gifts, clientv3.OpTxn([]clientv3.Cmp{
				clientv3.Compare(clientv3.ModRevision(key), "=", int64(epochs[i].Revision)),
				clientv3.Compare(clientv3.LeaseValue(key), "=", m.lease),
			}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
		}
	}
	for chunk := range slices.Chunk(gifts, maxNested) {
		err := retryUncertain(ctx, func() error {
			_, err := m.etcd.Txn(ctx).Then(chunk...).Commit()
			return err
		})
		if err != nil {
			return fmt.Errorf("give partitions back: %w", withCode(err))
		}
	}
	return nil
}

// Leave implements [cluster.Membership].
func (m *membership) Leave(ctx context.Context) error {
	defer m.renewer.Close()
	if err := retryUncertain(ctx, func() error { return revokeLease(ctx, m.client, m.lease) }); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
