package council

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd"
)

// releaseTimeout bounds the end of a lease under which nothing came to be.
const releaseTimeout = 2 * time.Second

// Config configures a Store.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// ElectionTTL is how long a leader that is gone without a word remains elected. Defaults to 10 s.
	ElectionTTL time.Duration
}

// A Store keeps the roster of the client's cluster. An origin must have been founded before.
type Store struct {
	cfg    Config
	client *etcd.Client
	etcd   *clientv3.Client
	keys   etcd.Keys
}

var _ cluster.Store = (*Store)(nil)

// New makes the Store of the client's keys.
func New(client *etcd.Client, cfg Config) *Store {
	cfg.ElectionTTL = cmp.Or(cfg.ElectionTTL, 10*time.Second)
	return &Store{cfg: cfg, client: client, etcd: client.Driver(), keys: client.Keys()}
}

// View implements [roster.Store]. The origin must be of N partitions, else it is the fault CheckpointPartitions; without one it is
// checkpoint.ErrNoOrigin. What cannot be read is the fault ClusterCorrupt; keys that are not of our making are left out.
func (s *Store) View(ctx context.Context) (cluster.View, error) {
	resp, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.Origin()),
		clientv3.OpGet(s.keys.Members(), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.Owners(), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.Plan()),
		clientv3.OpGet(s.candidates(), clientv3.WithFirstCreate()...),
		clientv3.OpGet(s.keys.Wishes(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return cluster.View{}, fmt.Errorf("read the roster: %w", etcd.Named(err))
	}
	view, err := s.viewOf(resp)
	if err != nil {
		return cluster.View{}, fmt.Errorf("read the roster: %w", err)
	}
	return view, nil
}

func (s *Store) viewOf(resp *clientv3.TxnResponse) (view cluster.View, err error) {
	kvs := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	stands, err := etcd.StandingOf(kvs(0), s.cfg.Partitions)
	if err != nil {
		return view, err
	}
	view.Revision = resp.Header.Revision
	view.Members = seatsOf(s.keys, kvs(1))
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
	view.Directives = wishesOf(s.keys, s.cfg.Partitions, kvs(5))
	return view, nil
}

// candidates is the prefix of the keys of those who want to lead.
func (s *Store) candidates() string { return s.keys.Election() + "/" }
