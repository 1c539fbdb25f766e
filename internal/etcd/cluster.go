package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
)

// releaseTimeout bounds the end of a lease under which nothing came to be.
const releaseTimeout = 2 * time.Second

// ClusterConfig configures a Store.
type ClusterConfig struct {
	// Partitions is N. Required.
	Partitions int
	// ElectionTTL is how long a leader that is gone without a word remains elected. Defaults to 10
	// s.
	ElectionTTL time.Duration
}

// A ClusterStore keeps the state of the client's cluster. An origin must have been created before.
type ClusterStore struct {
	cfg    ClusterConfig
	client *Client
	etcd   *clientv3.Client
	keys   keys
	heard  sync.Map // node → arrival of its last heartbeat
}

var _ cluster.Store = (*ClusterStore)(nil)

// NewClusterStore makes the Store of the client's keys.
func NewClusterStore(client *Client, cfg ClusterConfig) *ClusterStore {
	cfg.ElectionTTL = cmp.Or(cfg.ElectionTTL, 10*time.Second)
	return &ClusterStore{cfg: cfg, client: client, etcd: client.etcd, keys: client.keys}
}

// View implements [cluster.Store]. It returns the fault CheckpointPartitions if the origin has
// another number of partitions, checkpoint.ErrNoOrigin without one, and the fault ClusterCorrupt if
// a key is unreadable. It ignores foreign keys.
func (s *ClusterStore) View(ctx context.Context) (cluster.View, error) {
	resp, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.origin()),
		clientv3.OpGet(s.keys.members(), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.owners(), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.plan()),
		clientv3.OpGet(s.candidates(), clientv3.WithFirstCreate()...),
		clientv3.OpGet(s.keys.directives(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return cluster.View{}, fmt.Errorf("read the state of the cluster: %w", withCode(err))
	}
	view, err := s.viewOf(resp)
	if err != nil {
		return cluster.View{}, fmt.Errorf("read the state of the cluster: %w", err)
	}
	return view, nil
}

func (s *ClusterStore) viewOf(resp *clientv3.TxnResponse) (view cluster.View, err error) {
	kvs := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	stands, err := originStateOf(kvs(0), s.cfg.Partitions)
	err = s.client.belongs(stands.Origin, err)
	if err != nil {
		return view, err
	}
	view.Revision = resp.Header.Revision
	view.Members = membersOf(s.keys, kvs(1))
	slices.SortFunc(view.Members, func(a, b cluster.Member) int { return strings.Compare(a.Node, b.Node) })
	if view.Owners, err = ownersOf(s.keys, stands, kvs(2)); err != nil {
		return view, err
	}
	if view.Plan, err = planOf(kvs(3)); err != nil {
		return view, err
	}
	if first := kvs(4); len(first) > 0 && first[0].Lease != 0 {
		view.Leader = string(first[0].Value)
	}
	view.Directives = directivesOf(s.keys, s.cfg.Partitions, kvs(5))
	return view, nil
}

// candidates is the prefix of the keys of those who want to lead.
func (s *ClusterStore) candidates() string { return s.keys.election() + "/" }
