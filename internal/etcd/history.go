package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// History implements [checkpoint.HistoryKeeper].
func (s *Store) History(ctx context.Context, p change.Partition) ([]checkpoint.Mark, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.history(p), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read history of partition %d: %w", p, Named(err))
	}
	entries := make(record.History, 0, len(resp.Kvs))
	var unread []error
	for _, kv := range resp.Kvs {
		m, trail, err := record.DecodeEntry(string(kv.Key), p, s.partitions, kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		entries.Add(m, trail)
	}
	return entries.Newest(), errors.Join(unread...)
}
