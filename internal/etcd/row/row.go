package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// pageLength is how many rows are read or deleted at once: in the worst case one has more than a megabyte, and etcd takes 128 operations
// in a transaction.
const pageLength = 100

// perLease is for how long rows are saved under one lease, which lives for so much longer than a row. So no row needs a lease of its own, nor a
// renewal each time that it is saved.
const perLease = time.Hour

// A Keeper keeps rows under one prefix, under leases: etcd itself reckons how old they are, and drops them.
type Keeper struct {
	etcd   *clientv3.Client
	prefix string
	insist func(context.Context, func() error) error
	named  func(error) error

	turn chan struct{} // held by who uses the others, as long as its context lasts

	lease   clientv3.LeaseID // the one for rows that are saved now, 0 before the first
	granted time.Time
}

var _ checkpoint.RowKeeper = (*Keeper)(nil)

// NewKeeper makes the keeper of the rows whose keys begin with a prefix. Insist does what can be done more than once until it is known
// whether it was done; named gives errors of etcd their codes.
func NewKeeper(
	etcd *clientv3.Client, prefix string, insist func(context.Context, func() error) error, named func(error) error,
) *Keeper {
	return &Keeper{etcd: etcd, prefix: prefix, insist: insist, named: named, turn: make(chan struct{}, 1)}
}

// leaseNow returns the lease under which rows are saved now, another one than that which etcd does not know any more: it was restored or
// replaced, or the machine stood still for long.
func (k *Keeper) leaseNow(ctx context.Context, gone clientv3.LeaseID) (clientv3.LeaseID, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-k.turn }()
	if k.lease != gone && time.Since(k.granted) < perLease {
		return k.lease, nil
	}
	now := time.Now()
	granted, err := k.etcd.Grant(ctx, int64((checkpoint.RowLife + perLease).Seconds()))
	if err != nil {
		return 0, err
	}
	k.lease, k.granted = granted.ID, now
	return granted.ID, nil
}

// put makes a transaction that puts under the lease of now.
func (k *Keeper) put(ctx context.Context, transaction func(lease clientv3.OpOption) clientv3.Txn) (*clientv3.TxnResponse, error) {
	for gone := clientv3.LeaseID(0); ; {
		id, err := k.leaseNow(ctx, gone)
		if err != nil {
			return nil, err
		}
		resp, err := transaction(clientv3.WithLease(id)).Commit()
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return resp, err
		}
		gone = id
	}
}

// key is the key of a gateway's row. The name is escaped as a segment of a path, so that common names can be read, no key contains a
// further slash, and no two names give one key.
func (k *Keeper) key(gateway string) string { return k.prefix + url.PathEscape(gateway) }

// SaveRow implements [checkpoint.RowKeeper].
func (k *Keeper) SaveRow(ctx context.Context, r checkpoint.Row) error {
	value, err := record.EncodeRow(r)
	for saved := false; err == nil && !saved; {
		err = k.insist(ctx, func() (err error) {
			saved, err = k.save(ctx, r, string(value))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("save row of gateway %q: %w", r.Gateway, k.named(err))
	}
	return nil
}

// save makes one attempt; saved is false where somebody else has written the row meanwhile.
func (k *Keeper) save(ctx context.Context, r checkpoint.Row, value string) (saved bool, err error) {
	stands, revision, err := k.find(ctx, r.Gateway)
	if err = cmp.Or(err, r.Over(stands)); err != nil {
		return false, err
	}
	key := k.key(r.Gateway)
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	txn, err := k.put(ctx, func(lease clientv3.OpOption) clientv3.Txn {
		return k.etcd.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, value, lease))
	})
	if err != nil || !txn.Succeeded {
		return false, err
	}
	if revision == 0 {
		err = k.drop(ctx)
	}
	return true, err
}

// find reads the row of a gateway and the revision that wrote it, which is 0 where there is none.
func (k *Keeper) find(ctx context.Context, gateway string) (row checkpoint.Row, revision int64, err error) {
	key := k.key(gateway)
	resp, err := k.etcd.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return row, 0, err
	}
	row, err = record.DecodeRow(key, resp.Kvs[0].Value, k.key)
	return row, resp.Kvs[0].ModRevision, err
}

// drop deletes those that were written longest ago, whether or not they can be read, as far as there are too many. To count them etcd
// walks over all, so it is asked only where one is new.
func (k *Keeper) drop(ctx context.Context) error {
	all, err := k.etcd.Get(ctx, k.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || all.Count <= checkpoint.MaxRows {
		return err
	}
	oldest, err := k.etcd.Get(ctx, k.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend), clientv3.WithLimit(min(all.Count-checkpoint.MaxRows, pageLength)))
	if err != nil {
		return err
	}
	return k.deleteUnchanged(ctx, oldest.Kvs)
}

// deleteUnchanged deletes the keys, at most a page of them, that nobody has written since they were read.
func (k *Keeper) deleteUnchanged(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(kvs))
	for i, kv := range kvs {
		unchanged := clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{unchanged}, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil)
	}
	return k.insist(ctx, func() error {
		_, err := k.etcd.Txn(ctx).Then(deletes...).Commit()
		return err
	})
}

// Row implements [checkpoint.RowKeeper].
func (k *Keeper) Row(ctx context.Context, gateway string) (row checkpoint.Row, ok bool, err error) {
	row, revision, err := k.find(ctx, gateway)
	if err != nil {
		return row, false, fmt.Errorf("read row of gateway %q: %w", gateway, k.named(err))
	}
	return row, revision != 0, nil
}

// Rows implements [checkpoint.RowKeeper].
func (k *Keeper) Rows(ctx context.Context) (rows []checkpoint.Row, err error) {
	ages := make(map[int64]time.Duration)
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.prefix))
	for from, more := k.prefix, true; more; {
		page, failed := k.etcd.Get(ctx, from, end, clientv3.WithLimit(pageLength))
		if failed != nil {
			return nil, fmt.Errorf("read rows of gateways: %w", k.named(failed))
		}
		var unleased []*mvccpb.KeyValue
		for _, kv := range page.Kvs {
			from = string(kv.Key) + "\x00"
			r, unread := record.DecodeRow(string(kv.Key), kv.Value, k.key)
			if unread != nil {
				err = errors.Join(err, unread)
				continue
			}
			if kv.Lease == 0 {
				unleased = append(unleased, kv)
			} else if r.Age, failed = k.age(ctx, kv.Lease, ages); failed != nil {
				return nil, fmt.Errorf("read rows of gateways: %w", k.named(failed))
			}
			rows = append(rows, r)
		}
		if failed := k.take(ctx, unleased); failed != nil {
			err = errors.Join(err, fmt.Errorf("put rows of gateways under a lease: %w", k.named(failed)))
		}
		more = page.More
	}
	checkpoint.SortRows(rows)
	return rows, err
}

// age returns for how long at least a row has not been saved that is under a lease; ages has what is known.
func (k *Keeper) age(ctx context.Context, lease int64, ages map[int64]time.Duration) (time.Duration, error) {
	if age, known := ages[lease]; known {
		return age, nil
	}
	left, err := k.etcd.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, err
	}
	ages[lease] = max(checkpoint.RowLife-time.Duration(left.TTL)*time.Second, 0)
	return ages[lease], nil
}

// take puts rows under a lease, as they are: those that an earlier version has saved are under none.
func (k *Keeper) take(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	for _, kv := range kvs { // large ones together may be more than a request takes
		unchanged := clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
		_, err := k.put(ctx, func(lease clientv3.OpOption) clientv3.Txn {
			return k.etcd.Txn(ctx).If(unchanged).Then(clientv3.OpPut(string(kv.Key), string(kv.Value), lease))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteRow implements [checkpoint.RowKeeper].
func (k *Keeper) DeleteRow(ctx context.Context, gateway string) error {
	err := k.insist(ctx, func() error {
		_, err := k.etcd.Delete(ctx, k.key(gateway))
		return err
	})
	if err != nil {
		return fmt.Errorf("delete row of gateway %q: %w", gateway, k.named(err))
	}
	return nil
}
