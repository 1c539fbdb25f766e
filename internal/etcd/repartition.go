package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Repartition replaces the origin last with next, which may have another number of partitions. In
// the same transaction it removes the state of the old partitions: the plan, pins, and the
// checkpoints of shared subscribers, which begin at next's start in every partition. Histories and
// the checkpoints of exclusive subscribers contain their number of partitions and stay, and so does
// the gap log. It returns the fault NodeRunning if there is a member or an owner, and
// checkpoint.ErrOriginMoved if the origin is not last or a shared checkpoint is earlier than next's
// start. If the origin is next already, it returns no error.
func (s *Store) Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	value, err := checkpoint.EncodeOrigin(next)
	for done := false; err == nil && !done; {
		err = retryUncertain(ctx, func() error {
			done, err = s.client.repartition(ctx, last, next, string(value))
			return err
		})
	}
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("repartition: %w", withCode(err))
	}
	s.forgetOrigin()
	return next, nil
}

// repartition makes one attempt; done is false where something was written meanwhile.
func (c *Client) repartition(ctx context.Context, last, next checkpoint.Origin, value string) (done bool, err error) {
	one := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)}
	read, err := c.etcd.Txn(ctx).Then(
		clientv3.OpGet(c.keys.origin(), clientv3.WithPrefix()), clientv3.OpGet(c.keys.members(), one...), clientv3.OpGet(c.keys.owners(), one...),
		clientv3.OpGet(c.keys.shared(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return false, err
	}
	stands, err := c.standing(read.Responses[0].GetResponseRange().Kvs, 0)
	switch {
	case err != nil:
		return false, err
	case stands.Equal(next):
		return true, nil
	case !stands.Equal(last):
		return false, checkpoint.ErrOriginMoved
	}
	for _, held := range read.Responses[1:3] {
		if kvs := held.GetResponseRange().Kvs; len(kvs) > 0 {
			return false, fault.Newf(fault.NodeRunning, "%s: a node is there; that of one that was killed goes with its lease", kvs[0].Key)
		}
	}
	for _, kv := range read.Responses[3].GetResponseRange().Kvs {
		m, _, err := checkpoint.Decode(string(kv.Key), c.keys.checkpoint, last.Partitions, kv.Value)
		if err != nil {
			return false, err
		}
		if change.At(next.Start).After(m.Position) {
			return false, fmt.Errorf("%s is at %s, before %s: %w", m.Key, m.Position, next.Start, checkpoint.ErrOriginMoved)
		}
	}
	puts, err := c.putBackend(next.Backend.With(stands.Backend))
	if err != nil {
		return false, err
	}
	none := func(prefix string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
	}
	resp, err := c.etcd.Txn(ctx).
		If(c.is(stands), none(c.keys.members()), none(c.keys.owners()),
			clientv3.Compare(clientv3.ModRevision(c.keys.shared()), "<", read.Header.Revision+1).WithPrefix()).
		Then(append(puts, clientv3.OpPut(c.keys.origin(), value), clientv3.OpDelete(c.keys.shared(), clientv3.WithPrefix()),
			clientv3.OpDelete(c.keys.plan()), clientv3.OpDelete(c.keys.pins(), clientv3.WithPrefix()))...).
		Commit()
	return err == nil && resp.Succeeded, err
}
