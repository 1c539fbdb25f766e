package keyring

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/etcd"
)

// A Keeper keeps the keys of the client's cluster.
type Keeper struct {
	client *clientv3.Client
	name   string
}

var _ checkpoint.KeyKeeper = (*Keeper)(nil)

// New makes a Keeper.
func New(c *etcd.Client) *Keeper { return &Keeper{client: c.Driver(), name: c.Keys().Secrets()} }

// Keys implements [checkpoint.KeyKeeper].
func (k *Keeper) Keys(ctx context.Context) (checkpoint.Keys, error) {
	keys, _, err := k.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", etcd.Named(err))
	}
	return keys, nil
}

// read returns the keys and the revision of their value, 0 where there is none.
func (k *Keeper) read(ctx context.Context) (keys checkpoint.Keys, revision int64, err error) {
	resp, err := k.client.Get(ctx, k.name)
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	keys, err = record.DecodeKeys(k.name, resp.Kvs[0].Value)
	return keys, resp.Kvs[0].ModRevision, err
}

// AddKey implements [checkpoint.KeyKeeper]. Where its answer gets lost, it looks whether the key is there.
func (k *Keeper) AddKey(ctx context.Context, key checkpoint.Key) error {
	for added := false; !added; {
		err := etcd.Insist(ctx, func() (err error) {
			added, err = k.add(ctx, key)
			return err
		})
		if err != nil {
			return fmt.Errorf("add a key: %w", etcd.Named(err))
		}
	}
	return nil
}

// add makes one attempt; added is false where somebody else has written the keys meanwhile.
func (k *Keeper) add(ctx context.Context, key checkpoint.Key) (added bool, err error) {
	keys, revision, err := k.read(ctx)
	if err != nil {
		return false, err
	}
	keys, changed, err := keys.Add(key)
	if err != nil || !changed {
		return err == nil, err
	}
	value, err := record.EncodeKeys(keys)
	if err != nil {
		return false, err
	}
	resp, err := k.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(k.name), "=", revision)).
		Then(clientv3.OpPut(k.name, string(value))).
		Commit()
	return err == nil && resp.Succeeded, err
}
