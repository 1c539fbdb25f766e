package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/handoff"
)

var _ handoff.DirectiveStore = (*ClusterStore)(nil)

// directivesOf reads the keys of directives. It ignores unreadable ones.
func directivesOf(keys keys, partitions int, kvs []*mvccpb.KeyValue) (w cluster.Directives) {
	for _, kv := range kvs {
		key := string(kv.Key)
		switch {
		case strings.HasPrefix(key, keys.pins()):
			p, err := partitionOf(keys.pins(), key)
			pin := pinOf(kv)
			if err != nil || int(p) >= partitions || pin.To == "" {
				continue
			}
			if w.Pinned == nil {
				w.Pinned = make(map[change.Partition]cluster.Pin)
			}
			w.Pinned[p] = pin
		case strings.HasPrefix(key, keys.drains()):
			node, err := url.PathUnescape(strings.TrimPrefix(key, keys.drains()))
			if err != nil || node == "" {
				continue
			}
			if w.Drained == nil {
				w.Drained = make(map[string]cluster.Drain)
			}
			var drain cluster.Drain
			_ = json.Unmarshal(kv.Value, &drain) // the key says it
			w.Drained[node] = drain
		}
	}
	return w
}

// pinOf reads a pin, the zero one where it cannot be read.
func pinOf(kv *mvccpb.KeyValue) (pin cluster.Pin) {
	if json.Unmarshal(kv.Value, &pin) != nil {
		return cluster.Pin{}
	}
	return pin
}

// Pin implements [handoff.DirectiveStore]. The ttl is rounded up to seconds.
func (s *ClusterStore) Pin(ctx context.Context, p change.Partition, wish cluster.Pin, ttl time.Duration) error {
	if int(p) >= s.cfg.Partitions {
		return fmt.Errorf("pin partition %d of %d", p, s.cfg.Partitions)
	}
	stands, err := s.client.origin(ctx, s.cfg.Partitions)
	if err != nil {
		return err
	}
	value, err := encodeJSON(wish)
	if err != nil {
		return err
	}
	id, _, err := grantLease(ctx, s.client, ttl)
	if err != nil {
		return err
	}
	kept := false
	err = retryUncertain(ctx, func() (err error) {
		kept, err = s.pin(ctx, stands, p, wish, value, id)
		return err
	})
	if !kept {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = revokeLease(giving, s.client, id) // else it runs out
	}
	if err != nil {
		return fmt.Errorf("pin partition %d: %w", p, withCode(err))
	}
	return nil
}

// pin makes one attempt, and reports whether the pin is stored under its lease.
func (s *ClusterStore) pin(
	ctx context.Context, stands originState, p change.Partition, wish cluster.Pin, value string, id clientv3.LeaseID,
) (kept bool, err error) {
	key := s.keys.pin(p)
	resp, err := s.etcd.Txn(ctx).
		If(s.client.is(stands), clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(id))).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil || resp.Succeeded {
		return err == nil, err
	}
	there := resp.Responses[0].GetResponseRange().Kvs
	if len(there) == 0 {
		return false, checkpoint.ErrOriginMoved
	}
	if pin := pinOf(there[0]); !pin.Same(wish) {
		return false, fmt.Errorf("to node %q, by %q: %w", pin.To, pin.By, cluster.ErrPinned)
	}
	return clientv3.LeaseID(there[0].Lease) == id, nil
}

// Unpin implements [handoff.DirectiveStore].
func (s *ClusterStore) Unpin(ctx context.Context, p change.Partition, wish cluster.Pin) error {
	err := retryUncertain(ctx, func() error {
		resp, err := s.etcd.Get(ctx, s.keys.pin(p))
		if err != nil || len(resp.Kvs) == 0 || !pinOf(resp.Kvs[0]).Same(wish) {
			return err
		}
		kv := resp.Kvs[0]
		_, err = s.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpDelete(string(kv.Key))).Commit()
		if err == nil && kv.Lease != 0 {
			err = revokeLease(ctx, s.client, clientv3.LeaseID(kv.Lease))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("unpin partition %d: %w", p, withCode(err))
	}
	return nil
}

// Drain implements [handoff.DirectiveStore].
func (s *ClusterStore) Drain(ctx context.Context, node string, wish cluster.Drain) error {
	stands, err := s.client.origin(ctx, s.cfg.Partitions)
	if err != nil {
		return err
	}
	value, err := encodeJSON(wish)
	if err == nil {
		key := s.keys.drain(node)
		put := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, []clientv3.Op{clientv3.OpPut(key, value)}, nil)
		err = retryUncertain(ctx, func() error {
			_, err := s.client.nest(ctx, stands, []clientv3.Op{put})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("drain node %q: %w", node, withCode(err))
	}
	return nil
}

// Undrain implements [handoff.DirectiveStore].
func (s *ClusterStore) Undrain(ctx context.Context, node string) error {
	err := retryUncertain(ctx, func() error {
		_, err := s.etcd.Delete(ctx, s.keys.drain(node))
		return err
	})
	if err != nil {
		return fmt.Errorf("undrain node %q: %w", node, withCode(err))
	}
	return nil
}
