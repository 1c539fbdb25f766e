package etcd

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
)

// heartbeats are those of members with as many partitions each.
func heartbeats(b *testing.B, keys keys, members, held int) []*mvccpb.KeyValue {
	b.Helper()
	kvs := make([]*mvccpb.KeyValue, members)
	for i := range kvs {
		h := cluster.Heartbeat{
			Node: fmt.Sprintf("node-%02d", i), Process: "0b6c1a3e-5d5f-4b3e-9d53-3f0a7d1c2b4e", Kind: cluster.KindNode, StartedAt: time.Unix(1_700_000_000, 0),
			Version: "v1.2.3", Status: cluster.StatusHealthy, Count: n, Fingerprint: "5f1e9a", Gateway: "10.0.0.1:7443",
			Checks: map[string]bool{cluster.CheckMongoDB: true, cluster.CheckEtcd: true, cluster.CheckCheckpoint: true, cluster.CheckGateway: true},
		}
		for p := range held {
			h.Held = append(h.Held, cluster.HeldPartition{
				Partition: change.Partition(p), Epoch: change.Epoch{Incarnation: 1, Revision: 123_456}, Rate: 12.5, State: "live",
			})
		}
		value, err := encodeHeartbeat(h)
		if err != nil {
			b.Fatal(err)
		}
		kvs[i] = &mvccpb.KeyValue{Key: []byte(keys.member(h.Node)), Value: []byte(value), Lease: 1, CreateRevision: 5, ModRevision: 6}
	}
	return kvs
}

// BenchmarkHeartbeat is what one heartbeat that tells nothing new costs whoever takes hints.
func BenchmarkHeartbeat(b *testing.B) {
	var keys keys
	seen := make(statuses)
	var events []*clientv3.Event
	for _, kv := range heartbeats(b, keys, 1, 34) {
		events = append(events, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
	}
	seen.news(events)
	for b.Loop() {
		if seen.news(events) {
			b.Fatal("news")
		}
	}
}

// BenchmarkView is what reading the state of 30 members and their partitions costs, without the
// network.
func BenchmarkView(b *testing.B) {
	s := &ClusterStore{cfg: ClusterConfig{Partitions: n}, client: &Client{}}
	origin, err := checkpoint.EncodeOrigin(checkpointtest.Origin("c1"))
	if err != nil {
		b.Fatal(err)
	}
	value, err := encodeOwner("node-01", "0b6c1a3e-5d5f-4b3e-9d53-3f0a7d1c2b4e", time.Unix(1_700_000_000, 0), "")
	if err != nil {
		b.Fatal(err)
	}
	owners := make([]*mvccpb.KeyValue, n)
	for p := range owners {
		owners[p] = &mvccpb.KeyValue{Key: []byte(s.keys.owner(change.Partition(p))), Value: []byte(value), ModRevision: 7}
	}
	resp := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 9}}
	for _, kvs := range [][]*mvccpb.KeyValue{
		{{Key: []byte(s.keys.origin()), Value: []byte(origin), ModRevision: 1}}, heartbeats(b, s.keys, 30, n/30), owners, nil, nil, nil,
	} {
		resp.Responses = append(resp.Responses, &etcdserverpb.ResponseOp{
			Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: kvs}},
		})
	}
	for b.Loop() {
		if view, err := s.viewOf(resp); err != nil || len(view.Members) != 30 {
			b.Fatalf("%+v, %v", view, err)
		}
	}
}
