package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// pageLength is how many rows are read or deleted at once: in the worst case one has more than a megabyte, and etcd takes 128 operations
// in a transaction.
const pageLength = 100

// A Keeper keeps rows under one prefix.
type Keeper struct {
	etcd   *clientv3.Client
	prefix string
	named  func(error) error
}

var _ checkpoint.RowKeeper = (*Keeper)(nil)

// NewKeeper makes the keeper of the rows whose keys begin with a prefix. Named gives errors of etcd their codes.
func NewKeeper(etcd *clientv3.Client, prefix string, named func(error) error) *Keeper {
	return &Keeper{etcd: etcd, prefix: prefix, named: named}
}

// key is the key of a gateway's row. The name is escaped as a segment of a path, so that common names can be read, no key contains a
// further slash, and no two names give one key.
func (k *Keeper) key(gateway string) string { return k.prefix + url.PathEscape(gateway) }

// SaveRow implements [checkpoint.RowKeeper].
func (k *Keeper) SaveRow(ctx context.Context, r checkpoint.Row) error {
	value, err := record.EncodeRow(r)
	for saved := false; err == nil && !saved; {
		saved, err = k.save(ctx, r, string(value))
	}
	if err != nil {
		return fmt.Errorf("save row of gateway %q: %w", r.Gateway, k.named(err))
	}
	return nil
}

// save makes one attempt; saved is false where somebody else has written the row meanwhile.
func (k *Keeper) save(ctx context.Context, r checkpoint.Row, value string) (saved bool, err error) {
	stands, revision, err := k.find(ctx, r.Gateway)
	if err = cmp.Or(err, r.Over(stands, time.Now())); err != nil {
		return false, err
	}
	key := k.key(r.Gateway)
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	txn, err := k.etcd.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, value)).Commit()
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
	_, err := k.etcd.Txn(ctx).Then(deletes...).Commit()
	return err
}

// Row implements [checkpoint.RowKeeper].
func (k *Keeper) Row(ctx context.Context, gateway string) (row checkpoint.Row, ok bool, err error) {
	row, _, err = k.find(ctx, gateway)
	if err != nil {
		return row, false, fmt.Errorf("read row of gateway %q: %w", gateway, k.named(err))
	}
	return row, !row.Expired(time.Now()), nil
}

// Rows implements [checkpoint.RowKeeper].
func (k *Keeper) Rows(ctx context.Context) (rows []checkpoint.Row, err error) {
	now := time.Now()
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.prefix))
	for from, more := k.prefix, true; more; {
		page, failed := k.etcd.Get(ctx, from, end, clientv3.WithLimit(pageLength))
		if failed != nil {
			return nil, fmt.Errorf("read rows of gateways: %w", k.named(failed))
		}
		var old []*mvccpb.KeyValue
		for _, kv := range page.Kvs {
			from = string(kv.Key) + "\x00"
			r, unread := record.DecodeRow(string(kv.Key), kv.Value, k.key)
			switch {
			case unread != nil:
				err = errors.Join(err, unread)
			case r.Expired(now):
				old = append(old, kv)
			default:
				rows = append(rows, r)
			}
		}
		if failed := k.deleteUnchanged(ctx, old); failed != nil {
			err = errors.Join(err, fmt.Errorf("drop rows of gateways: %w", k.named(failed)))
		}
		more = page.More
	}
	checkpoint.SortRows(rows)
	return rows, err
}

// DeleteRow implements [checkpoint.RowKeeper].
func (k *Keeper) DeleteRow(ctx context.Context, gateway string) error {
	if _, err := k.etcd.Delete(ctx, k.key(gateway)); err != nil {
		return fmt.Errorf("delete row of gateway %q: %w", gateway, k.named(err))
	}
	return nil
}
