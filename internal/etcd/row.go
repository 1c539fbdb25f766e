package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"mongostream/checkpoint"
	"mongostream/checkpoint/record"
)

// rows is the prefix of the keys of gateways' rows, row one of those: the name as a segment of a path, without slashes, and readable mostly.
func (k Keys) rows() string              { return k.root + "row/" }
func (k Keys) row(gateway string) string { return k.rows() + url.PathEscape(gateway) }

// SaveRow implements [checkpoint.RowKeeper].
func (s *Store) SaveRow(ctx context.Context, r checkpoint.Row) error {
	value, err := record.EncodeRow(r)
	for saved := false; err == nil && !saved; {
		saved, err = s.saveRow(ctx, r, string(value))
	}
	if err != nil {
		return fmt.Errorf("save row of gateway %q: %w", r.Gateway, Named(err))
	}
	return nil
}

// saveRow makes one attempt; saved is false where somebody else has written the row meanwhile.
func (s *Store) saveRow(ctx context.Context, r checkpoint.Row, value string) (saved bool, err error) {
	stands, revision, err := s.findRow(ctx, r.Gateway)
	if err = cmp.Or(err, r.Over(stands, time.Now())); err != nil {
		return false, err
	}
	key, rows := s.client.keys.row(r.Gateway), s.client.keys.rows()
	txn, err := s.client.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, value), clientv3.OpGet(rows, clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
	if err != nil || !txn.Succeeded || txn.Responses[1].GetResponseRange().Count <= checkpoint.MaxRows {
		return err == nil && txn.Succeeded, err
	}
	// Those written longest ago go, whether or not they can be read.
	oldest, err := s.client.etcd.Get(ctx, rows, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision,
		clientv3.SortAscend), clientv3.WithLimit(min(txn.Responses[1].GetResponseRange().Count-checkpoint.MaxRows, MaxNested)))
	if err == nil {
		err = s.deleteUnchanged(ctx, oldest.Kvs)
	}
	return true, err
}

// findRow reads the row of a gateway and the revision that wrote it, which is 0 where there is none.
func (s *Store) findRow(ctx context.Context, gateway string) (row checkpoint.Row, revision int64, err error) {
	key := s.client.keys.row(gateway)
	resp, err := s.client.etcd.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return row, 0, err
	}
	row, err = record.DecodeRow(key, resp.Kvs[0].Value, s.client.keys.row)
	return row, resp.Kvs[0].ModRevision, err
}

// Row implements [checkpoint.RowKeeper].
func (s *Store) Row(ctx context.Context, gateway string) (row checkpoint.Row, ok bool, err error) {
	row, _, err = s.findRow(ctx, gateway)
	if err != nil {
		return row, false, fmt.Errorf("read row of gateway %q: %w", gateway, Named(err))
	}
	return row, !row.Expired(time.Now()), nil
}

// Rows implements [checkpoint.RowKeeper]. It reads few at once, because one row may have more than a megabyte.
func (s *Store) Rows(ctx context.Context) (rows []checkpoint.Row, err error) {
	from, end, now := s.client.keys.rows(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.client.keys.rows())), time.Now()
	for more := true; more; {
		page, failed := s.client.etcd.Get(ctx, from, end, clientv3.WithLimit(MaxNested))
		if failed != nil {
			return nil, fmt.Errorf("read rows of gateways: %w", Named(failed))
		}
		var old []*mvccpb.KeyValue
		for _, kv := range page.Kvs {
			from = string(kv.Key) + "\x00"
			if r, unread := record.DecodeRow(string(kv.Key), kv.Value, s.client.keys.row); unread != nil {
				err = errors.Join(err, unread)
			} else if r.Expired(now) {
				old = append(old, kv)
			} else {
				rows = append(rows, r)
			}
		}
		err, more = errors.Join(err, Named(s.deleteUnchanged(ctx, old))), page.More
	}
	checkpoint.SortRows(rows)
	return rows, err
}

// DeleteRow implements [checkpoint.RowKeeper].
func (s *Store) DeleteRow(ctx context.Context, gateway string) error {
	if _, err := s.client.etcd.Delete(ctx, s.client.keys.row(gateway)); err != nil {
		return fmt.Errorf("delete row of gateway %q: %w", gateway, Named(err))
	}
	return nil
}

// deleteUnchanged deletes at most MaxNested keys, those of them that nobody has written since they were read.
func (s *Store) deleteUnchanged(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	deletes := make([]clientv3.Op, len(kvs))
	for i, kv := range kvs {
		unchanged := clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{unchanged}, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil)
	}
	_, err := s.client.etcd.Txn(ctx).Then(deletes...).Commit()
	return err
}
