package etcd

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// A Standing is the origin as it stood at a revision.
type Standing struct {
	checkpoint.Origin

	Revision int64

	backend int64 // the revision of the backend's key, 0 where there is none
}

// Fences reports whether an epoch cannot own anything under the origin: it is of another incarnation, or of no claim (0 is
// the revision of a key that is not there).
func (o Standing) Fences(e change.Epoch) bool {
	return e.Incarnation != o.Incarnation || e.Revision == 0
}

// Is is the condition that the origin still stands as it stood then.
func (c *Client) Is(o Standing) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.keys.Origin()), "=", o.Revision)
}

// Origin reads the origin, which must be of the given number of partitions unless that is 0.
func (c *Client) Origin(ctx context.Context, partitions int) (Standing, error) {
	resp, err := c.etcd.Get(ctx, c.keys.Origin(), clientv3.WithPrefix())
	if err != nil {
		return Standing{}, fmt.Errorf("read origin: %w", Named(err))
	}
	return c.standing(resp.Kvs, partitions)
}

// standing is Origin with what was read at its key and below.
func (c *Client) standing(kvs []*mvccpb.KeyValue, partitions int) (Standing, error) {
	at := func(key string) []*mvccpb.KeyValue {
		return slices.DeleteFunc(slices.Clone(kvs), func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != key })
	}
	stands, err := StandingOf(at(c.keys.Origin()), partitions)
	if kvs := at(c.keys.Backend()); err == nil && len(kvs) > 0 {
		stands.backend = kvs[0].ModRevision
		stands.Backend, err = record.DecodeBackend(string(kvs[0].Key), kvs[0].Value)
	}
	if err != nil {
		return Standing{}, err
	}
	return stands, nil
}

// StandingOf is Origin with what was read at its key alone, without the backend.
func StandingOf(kvs []*mvccpb.KeyValue, partitions int) (Standing, error) {
	if len(kvs) == 0 {
		return Standing{}, checkpoint.ErrNoOrigin
	}
	kv := kvs[0]
	o, err := record.DecodeOrigin(string(kv.Key), partitions, kv.Value)
	if err != nil {
		return Standing{}, err
	}
	return Standing{Origin: o, Revision: kv.ModRevision}, nil
}

// Nest makes nested transactions in one, as long as the origin is the one that stands; else it is checkpoint.ErrOriginMoved. etcd
// takes MaxNested of them where none has more than two operations.
func (c *Client) Nest(ctx context.Context, stands Standing, nested []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := c.etcd.Txn(ctx).If(c.Is(stands)).Then(nested...).Commit()
	if err == nil && !resp.Succeeded {
		err = checkpoint.ErrOriginMoved
	}
	return resp, err
}

// create writes the origin if there is none and returns the one that stands.
func (c *Client) create(ctx context.Context, o checkpoint.Origin) (Standing, error) {
	value, err := record.EncodeOrigin(o)
	if err != nil {
		return Standing{}, err
	}
	puts, err := c.putBackend(o.Backend)
	if err != nil {
		return Standing{}, err
	}
	key := c.keys.Origin()
	var resp *clientv3.TxnResponse
	err = Insist(ctx, func() error {
		resp, err = c.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(append(puts, clientv3.OpPut(key, string(value)))...).
			Commit()
		return err
	})
	if err != nil {
		return Standing{}, fmt.Errorf("write origin: %w", Named(err))
	}
	if resp.Succeeded {
		return Standing{Origin: o, Revision: resp.Header.Revision, backend: resp.Header.Revision}, nil
	}
	return c.Origin(ctx, o.Partitions)
}

// putBackend returns the operation that writes a backend, none where nothing is known of it.
func (c *Client) putBackend(b checkpoint.Backend) ([]clientv3.Op, error) {
	value, err := record.EncodeBackend(b)
	if err != nil || value == nil {
		return nil, err
	}
	return []clientv3.Op{clientv3.OpPut(c.keys.Backend(), string(value))}, nil
}

// complete writes what the origin does not say of its backend. The origin's own key is not written: its revision is compared by everything
// that is done under it.
func (c *Client) complete(ctx context.Context, partitions int, b checkpoint.Backend) (Standing, error) {
	for {
		stands, err := c.Origin(ctx, partitions)
		if err != nil || stands.Backend.With(b) == stands.Backend {
			return stands, err
		}
		puts, err := c.putBackend(stands.Backend.With(b))
		if err != nil {
			return Standing{}, err
		}
		err = Insist(ctx, func() error {
			_, err := c.etcd.Txn(ctx).
				If(c.Is(stands), clientv3.Compare(clientv3.ModRevision(c.keys.Backend()), "=", stands.backend)).
				Then(puts...).
				Commit()
			return err
		})
		if err != nil {
			return Standing{}, fmt.Errorf("complete origin: %w", Named(err))
		}
	}
}

// adopt writes next in the place of last. That next stands already is the same, done by a request whose answer got lost.
func (c *Client) adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	value, err := record.EncodeOrigin(next)
	if err != nil {
		return err
	}
	return Insist(ctx, func() error {
		stands, err := c.Origin(ctx, last.Partitions)
		switch {
		case err != nil:
			return err
		case stands.Equal(next):
			return nil
		case !stands.Equal(last):
			return checkpoint.ErrOriginMoved
		}
		puts, err := c.putBackend(next.Backend.With(stands.Backend))
		if err != nil {
			return err
		}
		_, err = c.Nest(ctx, stands, append(puts, clientv3.OpPut(c.keys.Origin(), string(value))))
		return err
	})
}
