package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
)

// Campaign implements [cluster.Store]. It fails if the lease under which it waits expires; the
// caller tries again. It returns the fault ClusterCorrupt if a candidate's key has no lease,
// because then no other candidate could ever be elected.
func (s *ClusterStore) Campaign(ctx context.Context, node string) (cluster.Leadership, error) {
	stands, err := s.client.origin(ctx, s.cfg.Partitions)
	if err != nil {
		return nil, err
	}
	if err := s.mayElect(ctx); err != nil {
		return nil, err
	}
	id, _, err := grantLease(ctx, s.client, s.cfg.ElectionTTL)
	if err != nil {
		return nil, err
	}
	l := &leadership{ClusterStore: s, stands: stands, lease: id, lost: make(chan struct{})}
	if err := l.campaign(ctx, node); err != nil {
		return nil, fmt.Errorf("campaign: %w", withCode(err))
	}
	return l, nil
}

// mayElect checks the oldest candidate: its key must be under a lease, or it would be elected for
// ever.
func (s *ClusterStore) mayElect(ctx context.Context) error {
	resp, err := s.etcd.Get(ctx, s.candidates(), clientv3.WithFirstCreate()...)
	if err != nil {
		return fmt.Errorf("look who leads: %w", withCode(err))
	}
	if len(resp.Kvs) > 0 && resp.Kvs[0].Lease == 0 {
		return fault.Newf(fault.ClusterCorrupt, "%s: the key is under no lease, so that nobody else can be elected", resp.Kvs[0].Key)
	}
	return nil
}

// A leadership is an election: one to be won, or one that was.
type leadership struct {
	*ClusterStore

	stands   originState
	lease    clientv3.LeaseID
	key      string // in the election
	revision int64  // that made the key
	end      context.CancelFunc
	lost     chan struct{}
	watch    sync.WaitGroup
}

var _ cluster.Leadership = (*leadership)(nil)

var errSessionOver = errors.New("the lease of the election has run out")

// campaign waits until the node is elected.
func (l *leadership) campaign(ctx context.Context, node string) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l.end = end
	// The election ends with the context of its client, not with ours, and would wait for ever for
	// an etcd that does not answer.
	office := clientv3.NewCtxClient(life)
	office.KV, office.Lease, office.Watcher = l.etcd.KV, l.etcd.Lease, l.etcd.Watcher
	session, err := concurrency.NewSession(office, concurrency.WithLease(l.lease), concurrency.WithContext(life))
	if err != nil {
		return errors.Join(err, l.giveUp(ctx))
	}
	election := concurrency.NewElection(session, l.keys.election())
	trying, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	elected := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-elected:
			return
		case <-trying.Done():
		case <-session.Done():
			cancel(errSessionOver)
		}
		_ = l.giveUp(ctx)
	})
	err = election.Campaign(trying, node)
	if err == nil {
		l.key, l.revision = election.Key(), election.Rev()
		_, err = l.txn(trying) // it may have waited for longer than its lease has lived
	}
	if err == nil {
		close(elected)
		watch.Wait()
		l.watch.Go(func() { l.watchKey(life, session.Done()) })
		return nil
	}
	if trying.Err() != nil {
		err = context.Cause(trying)
	}
	cancel(nil)
	watch.Wait()
	return err
}

// giveUp ends the lease, and with it the session, without waiting for an etcd that does not answer
// for long.
func (l *leadership) giveUp(ctx context.Context) error {
	defer l.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return revokeLease(ctx, l.client, l.lease)
}

// watchKey closes lost when the session has ended or the key is gone.
func (l *leadership) watchKey(ctx context.Context, over <-chan struct{}) {
	defer close(l.lost)
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	var end sync.WaitGroup
	defer end.Wait()
	end.Go(func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		cancel()
	})
	defer cancel() // before the wait
	again := retry.Backoff{First: watchFirst, Longest: watchLongest}
	from := l.revision
	for failures := 1; ctx.Err() == nil; failures++ {
		watching, stop := context.WithTimeout(ctx, watchMax)
		for resp := range l.etcd.Watch(watching, l.key, clientv3.WithRev(from+1), clientv3.WithFilterPut()) {
			if len(resp.Events) > 0 {
				stop()
				return
			}
		}
		stop()
		// The watch broke or was long enough, or the revisions after its start are compacted.
		resp, err := l.txn(ctx)
		switch {
		case errors.Is(err, cluster.ErrDeposed):
			return
		case err == nil:
			from = resp.Header.Revision
		}
		_ = again.Wait(ctx, failures)
	}
}

// txn makes a transaction as long as the leadership lasts.
func (l *leadership) txn(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := l.etcd.Txn(ctx).If(l.leads()...).Then(ops...).Commit()
	if err == nil && !resp.Succeeded {
		return nil, cluster.ErrDeposed
	}
	return resp, err
}

// leads are the conditions of a leadership.
func (l *leadership) leads() []clientv3.Cmp {
	return []clientv3.Cmp{l.client.is(l.stands), clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.revision)}
}

// Lost implements [cluster.Leadership].
func (l *leadership) Lost() <-chan struct{} { return l.lost }

// Publish implements [cluster.Leadership]. If the plan is stored already, an earlier request has
// written it and its reply was lost.
func (l *leadership) Publish(ctx context.Context, p cluster.Plan) error {
	value, err := encodePlan(p)
	if err == nil {
		err = retryUncertain(ctx, func() error { return l.publish(ctx, int64(p.Version), value) })
	}
	if err != nil {
		return fmt.Errorf("publish plan %d: %w", p.Version, withCode(err))
	}
	return nil
}

func (l *leadership) publish(ctx context.Context, version int64, value string) error {
	key := l.keys.plan()
	resp, err := l.etcd.Txn(ctx).
		If(append(l.leads(), clientv3.Compare(clientv3.Version(key), "=", version-1))...).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key), clientv3.OpTxn(l.leads(), nil, nil)).
		Commit()
	if err != nil || resp.Succeeded {
		return err
	}
	stands := int64(0)
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		if stands = kvs[0].Version; stands == version && string(kvs[0].Value) == value {
			return nil
		}
	}
	if !resp.Responses[1].GetResponseTxn().Succeeded {
		return cluster.ErrDeposed
	}
	return fmt.Errorf("plan %d stands", stands)
}

// Evict implements [cluster.Leadership].
func (l *leadership) Evict(ctx context.Context, p change.Partition, epoch change.Epoch) error {
	var eviction []clientv3.Op
	if key := l.keys.owner(p); epoch.Revision > 0 && epoch == epochOf(l.stands, int64(epoch.Revision)) {
		eviction = append(eviction, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", int64(epoch.Revision))},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	err := retryUncertain(ctx, func() error {
		_, err := l.txn(ctx, eviction...)
		return err
	})
	if err != nil {
		return fmt.Errorf("evict the owner of partition %d: %w", p, withCode(err))
	}
	return nil
}

// Resign implements [cluster.Leadership].
func (l *leadership) Resign(ctx context.Context) error {
	defer l.watch.Wait()
	defer l.end()
	if err := retryUncertain(ctx, func() error { return revokeLease(ctx, l.client, l.lease) }); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}
