package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// An originState is the origin at a revision.
type originState struct {
	checkpoint.Origin

	Revision int64

	backend int64 // the revision of the backend's key, 0 where there is none
}

// Fences reports whether an epoch cannot own anything under the origin: it is of another
// incarnation, or of no claim (0 is the revision of a key that is not there).
func (o originState) Fences(e change.Epoch) bool {
	return e.Incarnation != o.Incarnation || e.Revision == 0
}

// is returns the condition that the origin has not changed since then.
func (c *Client) is(o originState) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.keys.origin()), "=", o.Revision)
}

// origin reads the origin, which must be of the given number of partitions unless that is 0.
func (c *Client) origin(ctx context.Context, partitions int) (originState, error) {
	resp, err := c.etcd.Get(ctx, c.keys.origin(), clientv3.WithPrefix())
	if err != nil {
		return originState{}, fmt.Errorf("read origin: %w", withCode(err))
	}
	return c.standing(resp.Kvs, partitions)
}

// moved returns, for an error that says that the origin is another one, why the process cannot go
// on: its cluster is gone, has another number of partitions, or has been adopted, and the process
// has read what it was before. It returns other errors as they are.
func (c *Client) moved(ctx context.Context, partitions int, err error) error {
	if !errors.Is(err, checkpoint.ErrOriginMoved) {
		return err
	}
	if _, reason := c.origin(ctx, partitions); reason != nil {
		return reason
	}
	return fault.New(fault.ClusterChanged, err)
}

// standing decodes the origin from its key and the keys below.
func (c *Client) standing(kvs []*mvccpb.KeyValue, partitions int) (originState, error) {
	at := func(key string) []*mvccpb.KeyValue {
		return slices.DeleteFunc(slices.Clone(kvs), func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != key })
	}
	stands, err := originStateOf(at(c.keys.origin()), partitions)
	err = c.belongs(stands.Origin, err)
	if kvs := at(c.keys.backend()); err == nil && len(kvs) > 0 {
		stands.backend = kvs[0].ModRevision
		stands.Backend, err = checkpoint.DecodeBackend(string(kvs[0].Key), kvs[0].Value)
	}
	if err != nil {
		return originState{}, err
	}
	return stands, nil
}

// originStateOf decodes the origin from its key alone, without the backend.
func originStateOf(kvs []*mvccpb.KeyValue, partitions int) (originState, error) {
	if len(kvs) == 0 {
		return originState{}, checkpoint.ErrNoOrigin
	}
	kv := kvs[0]
	o, err := checkpoint.DecodeOrigin(string(kv.Key), partitions, kv.Value)
	if err != nil {
		return originState{}, err
	}
	return originState{Origin: o, Revision: kv.ModRevision}, nil
}

// nest runs nested transactions in one, if the stored origin is the given one; otherwise it returns
// checkpoint.ErrOriginMoved. etcd accepts MaxNested of them if none has more than two operations.
func (c *Client) nest(ctx context.Context, stands originState, nested []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := c.etcd.Txn(ctx).If(c.is(stands)).Then(nested...).Commit()
	if err == nil && !resp.Succeeded {
		err = checkpoint.ErrOriginMoved
	}
	return resp, err
}

// create writes the origin if there is none and returns the stored one.
func (c *Client) create(ctx context.Context, o checkpoint.Origin) (originState, error) {
	value, err := checkpoint.EncodeOrigin(o)
	if err != nil {
		return originState{}, err
	}
	puts, err := c.putBackend(o.Backend)
	if err != nil {
		return originState{}, err
	}
	key := c.keys.origin()
	var resp *clientv3.TxnResponse
	err = retryUncertain(ctx, func() error {
		resp, err = c.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), nobody(c.keys.members()), nobody(c.keys.owners())).
			Then(append(puts, clientv3.OpPut(key, string(value)))...).
			Else(clientv3.OpGet(c.keys.members(), clientv3.WithPrefix()), clientv3.OpGet(c.keys.owners(), clientv3.WithPrefix())).
			Commit()
		return err
	})
	if err != nil {
		return originState{}, fmt.Errorf("write origin: %w", withCode(err))
	}
	if resp.Succeeded {
		return originState{Origin: o, Revision: resp.Header.Revision, backend: resp.Header.Revision}, nil
	}
	stands, err := c.origin(ctx, o.Partitions)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		there := append(resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs...)
		err = fault.Newf(fault.ClusterReplaced, "%s is gone, and %q still runs: no other cluster is founded beside it", key, holdersOf(there)[0].Node)
	}
	return stands, err
}

// nobody is the condition that there is no key with a prefix.
func nobody(prefix string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
}

// putBackend returns the operation that writes a backend, none where nothing is known of it.
func (c *Client) putBackend(b checkpoint.Backend) ([]clientv3.Op, error) {
	value, err := checkpoint.EncodeBackend(b)
	if err != nil || value == nil {
		return nil, err
	}
	return []clientv3.Op{clientv3.OpPut(c.keys.backend(), string(value))}, nil
}

// complete writes the missing parts of the origin's backend. It does not write the origin's own
// key, because every write under the origin compares its revision.
func (c *Client) complete(ctx context.Context, partitions int, b checkpoint.Backend) (originState, error) {
	for {
		stands, err := c.origin(ctx, partitions)
		if err != nil || stands.Backend.With(b) == stands.Backend {
			return stands, err
		}
		puts, err := c.putBackend(stands.Backend.With(b))
		if err != nil {
			return originState{}, err
		}
		err = retryUncertain(ctx, func() error {
			_, err := c.etcd.Txn(ctx).
				If(c.is(stands), clientv3.Compare(clientv3.ModRevision(c.keys.backend()), "=", stands.backend)).
				Then(puts...).
				Commit()
			return err
		})
		if err != nil {
			return originState{}, fmt.Errorf("complete origin: %w", withCode(err))
		}
	}
}

// adopt replaces the origin last with next. If next is stored already, an earlier request has
// written it and its reply was lost.
func (c *Client) adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	value, err := checkpoint.EncodeOrigin(next)
	if err != nil {
		return err
	}
	return retryUncertain(ctx, func() error {
		stands, err := c.origin(ctx, last.Partitions)
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
		_, err = c.nest(ctx, stands, append(puts, clientv3.OpPut(c.keys.origin(), string(value))))
		return err
	})
}
