package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
)

// AddGap implements [checkpoint.GapKeeper].
func (s *Store) AddGap(ctx context.Context, g checkpoint.Gap) error {
	g = g.Trimmed()
	for {
		var count int64
		added := false
		err := retryUncertain(ctx, func() (err error) {
			added, count, err = s.addGap(ctx, g)
			return err
		})
		if err != nil {
			return fmt.Errorf("write the gap log: %w", withCode(err))
		}
		if !added {
			continue // another process wrote the entry meanwhile
		}
		if count > checkpoint.MaxGaps {
			return s.dropGaps(ctx)
		}
		return nil
	}
}

// addGap makes one attempt, and returns how many entries there are now.
func (s *Store) addGap(ctx context.Context, g checkpoint.Gap) (added bool, count int64, err error) {
	prefix := s.client.keys.gaps()
	key := prefix + g.ID()
	resp, err := s.client.etcd.Get(ctx, key)
	if err != nil {
		return false, 0, err
	}
	var revision int64
	if len(resp.Kvs) > 0 {
		next, keep := g.Over(checkpoint.DecodeGap(key, resp.Kvs[0].Value))
		if keep {
			return true, 0, nil
		}
		g = next
		revision = resp.Kvs[0].ModRevision
	}
	value, err := checkpoint.EncodeGap(g)
	if err != nil {
		return false, 0, err
	}
	if revision != 0 && string(value) == string(resp.Kvs[0].Value) {
		return true, 0, nil
	}
	txn, err := s.client.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(value)), clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Commit()
	if err != nil || !txn.Succeeded {
		return false, 0, err
	}
	return true, txn.Responses[1].GetResponseRange().Count, nil
}

// Gaps implements [checkpoint.GapKeeper].
func (s *Store) Gaps(ctx context.Context) ([]checkpoint.Gap, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.gaps(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the gap log: %w", withCode(err))
	}
	return decodeGaps(resp.Kvs)
}

func decodeGaps(kvs []*mvccpb.KeyValue) ([]checkpoint.Gap, error) {
	gaps := make([]checkpoint.Gap, 0, len(kvs))
	var unread []error
	for _, kv := range kvs {
		g, err := checkpoint.DecodeGap(string(kv.Key), kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		gaps = append(gaps, g)
	}
	checkpoint.SortGaps(gaps)
	return gaps, errors.Join(unread...)
}

// dropGaps deletes the oldest entries as far as there are too many.
func (s *Store) dropGaps(ctx context.Context) error {
	prefix := s.client.keys.gaps()
	resp, err := s.client.etcd.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the gap log: %w", withCode(err))
	}
	gaps, _ := decodeGaps(resp.Kvs) // one that cannot be read stays, and counts
	for _, g := range gaps[:min(len(gaps), max(0, len(resp.Kvs)-checkpoint.MaxGaps))] {
		err := retryUncertain(ctx, func() error {
			_, err := s.client.etcd.Delete(ctx, prefix+g.ID())
			return err
		})
		if err != nil {
			return fmt.Errorf("drop from the gap log: %w", withCode(err))
		}
	}
	return nil
}
