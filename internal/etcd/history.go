package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"mongostream/change"
	"mongostream/checkpoint"
	"mongostream/checkpoint/record"
)

// History implements [checkpoint.HistoryKeeper].
func (s *Store) History(ctx context.Context, p change.Partition) ([]checkpoint.Mark, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.history(p), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read history of partition %d: %w", p, Named(err))
	}
	entries := make(map[uint64]checkpoint.Mark, len(resp.Kvs))
	var unread []error
	for _, kv := range resp.Kvs {
		m, trail, err := record.DecodeMark(string(kv.Key), p, s.partitions, kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		entries[trail.Entries] = m
	}
	marks := make([]checkpoint.Mark, 0, len(entries))
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(entries))) {
		marks = append(marks, entries[n])
	}
	return marks, errors.Join(unread...)
}
