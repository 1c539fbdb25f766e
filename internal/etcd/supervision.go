package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/supervisor"
)

// SupervisionConfig configures a SupervisionStore.
type SupervisionConfig struct {
	// Window is how long a restart counts. Defaults to 10 min.
	Window time.Duration
	// Retention is how long a report is kept at least. Defaults to 30 days.
	Retention time.Duration
}

// A SupervisionStore keeps the state and the orders of the supervisor of the client's cluster.
// Expiry is by etcd's clock.
type SupervisionStore struct {
	cfg    SupervisionConfig
	client *clientv3.Client
	prefix string

	mu struct {
		sync.Mutex
		process string // whose sweeps are committed here
		lease   clientv3.LeaseID
		until   time.Time // until when reports are written under it
	}
}

var _ supervisor.Store = (*SupervisionStore)(nil)

// NewSupervisionStore makes a SupervisionStore.
func NewSupervisionStore(c *Client, cfg SupervisionConfig) *SupervisionStore {
	cfg.Window, cfg.Retention = cmp.Or(cfg.Window, 10*time.Minute), cmp.Or(cfg.Retention, 30*24*time.Hour)
	return &SupervisionStore{cfg: cfg, client: c.etcd, prefix: c.keys.supervisor()}
}

// A reignForm is who sweeps, and the number of the last sweep. Key is the number of the last
// report's key.
type reignForm struct {
	Node    string `json:"node"`
	Process string `json:"process"`
	Sweep   uint64 `json:"sweep"`
	Key     uint64 `json:"key"`
}

func (s *SupervisionStore) reign() string    { return s.prefix + "reign" }
func (s *SupervisionStore) settings() string { return s.prefix + "settings" }
func (s *SupervisionStore) restarts() string { return s.prefix + "restart/" }
func (s *SupervisionStore) pauses() string   { return s.prefix + "pause/" }
func (s *SupervisionStore) reports() string  { return s.prefix + "report/" }
func (s *SupervisionStore) report(number uint64) string {
	return fmt.Sprintf("%s%020d", s.reports(), number)
}
func (s *SupervisionStore) orders(node string) string {
	return s.prefix + "order/" + url.PathEscape(node) + "/"
}

func reignOf(kvs []*mvccpb.KeyValue) (r reignForm, revision int64) {
	if len(kvs) > 0 {
		_ = json.Unmarshal(kvs[0].Value, &r) // an unreadable value belongs to no process
		revision = kvs[0].ModRevision
	}
	return r, revision
}

// Look implements [supervisor.Reader].
func (s *SupervisionStore) Look(ctx context.Context) (supervisor.Standing, error) {
	resp, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.reign()),
		clientv3.OpGet(s.restarts(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.pauses(), clientv3.WithPrefix()),
		clientv3.OpGet(s.settings()),
	).Commit()
	if err != nil {
		return supervisor.Standing{}, fmt.Errorf("read the state of supervision: %w", withCode(err))
	}
	kvs := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	r, _ := reignOf(kvs(0))
	standing := supervisor.Standing{Sweep: r.Sweep, By: r.Node, Used: make(map[string]int)}
	for _, kv := range kvs(1) {
		escaped, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.restarts()), "/")
		if slug, err := url.PathUnescape(escaped); err == nil {
			standing.Used[slug]++
		}
	}
	for _, kv := range kvs(2) {
		var p supervisor.Pause
		if json.Unmarshal(kv.Value, &p) == nil && p.Slug != "" {
			standing.Paused = append(standing.Paused, p)
		}
	}
	for _, kv := range kvs(3) {
		if err := json.Unmarshal(kv.Value, &standing.Change); err != nil {
			standing.Change = supervisor.Change{} // nobody's
		}
	}
	return standing, nil
}

// Reports implements [supervisor.Reader].
func (s *SupervisionStore) Reports(ctx context.Context, n int) ([]supervisor.Report, error) {
	resp, err := s.client.Get(ctx, s.reports(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(n)))
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", withCode(err))
	}
	reports := make([]supervisor.Report, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		var r supervisor.Report
		if json.Unmarshal(kv.Value, &r) == nil {
			reports = append(reports, r)
		}
	}
	return reports, nil
}

// Begin implements [supervisor.Keeper].
func (s *SupervisionStore) Begin(ctx context.Context, node, process string) (sweep uint64, err error) {
	err = retryUncertain(ctx, func() error {
		resp, err := s.client.Get(ctx, s.reign())
		if err != nil {
			return err
		}
		r, revision := reignOf(resp.Kvs)
		if sweep = r.Sweep; r.Process == process {
			return nil
		}
		r.Node = node
		r.Process = process
		value, err := encodeJSON(r)
		if err != nil {
			return err
		}
		put, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.reign()), "=", revision)).Then(clientv3.OpPut(s.reign(), value)).Commit()
		if err == nil && !put.Succeeded {
			err = supervisor.ErrDeposed
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("begin to sweep: %w", withCode(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.process = process
	return sweep, nil
}

// Commit implements [supervisor.Keeper].
func (s *SupervisionStore) Commit(ctx context.Context, c supervisor.Commit) error {
	commit := func() error { return s.commit(ctx, c) }
	err := retryUncertain(ctx, commit)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // the machine slept, or etcd was restored
		s.mu.Lock()
		s.mu.lease = clientv3.NoLease
		s.mu.Unlock()
		err = retryUncertain(ctx, commit)
	}
	if err != nil {
		return fmt.Errorf("write the report of sweep %d: %w", c.Report.Sweep, withCode(err))
	}
	return nil
}

func (s *SupervisionStore) commit(ctx context.Context, c supervisor.Commit) error {
	resp, err := s.client.Get(ctx, s.reign())
	if err != nil {
		return err
	}
	r, revision := reignOf(resp.Kvs)
	switch {
	case r.Process != c.Report.Process:
		return supervisor.ErrDeposed
	case r.Sweep == c.Report.Sweep:
		return nil // by a request whose answer got lost
	case r.Sweep+1 != c.Report.Sweep:
		return supervisor.ErrDeposed
	}
	r.Sweep = c.Report.Sweep
	if !c.Joined || r.Key == 0 {
		r.Key++
	}
	lease, err := s.lease(ctx)
	if err != nil {
		return err
	}
	state, err := encodeJSON(r)
	if err != nil {
		return err
	}
	report, err := encodeJSON(c.Report)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(s.reign(), state), clientv3.OpPut(s.report(r.Key), report, clientv3.WithLease(lease))}
	if len(c.Orders)+len(c.Charges) > 0 {
		window, err := s.client.Grant(ctx, int64((s.cfg.Window+time.Second-1)/time.Second))
		if err != nil {
			return err
		}
		for i, slug := range c.Charges {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%s/%020d-%d", s.restarts(), url.PathEscape(slug), r.Sweep, i), "", clientv3.WithLease(window.ID)))
		}
		for _, o := range c.Orders {
			value, err := encodeJSON(o)
			if err != nil {
				return err
			}
			ops = append(ops, clientv3.OpPut(s.orders(o.Node)+url.PathEscape(o.What), value, clientv3.WithLease(window.ID)))
		}
	}
	put, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.reign()), "=", revision)).Then(ops...).Commit()
	if err == nil && !put.Succeeded {
		return supervisor.ErrDeposed
	}
	return err
}

// lease returns the lease under which reports are written now.
func (s *SupervisionStore) lease(ctx context.Context) (clientv3.LeaseID, error) {
	now := time.Now()
	s.mu.Lock()
	id, until := s.mu.lease, s.mu.until
	s.mu.Unlock()
	if id != clientv3.NoLease && now.Before(until) {
		return id, nil
	}
	share := s.cfg.Retention / noticeLeases
	granted, err := s.client.Grant(ctx, int64((s.cfg.Retention+share+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lease = granted.ID
	s.mu.until = now.Add(share)
	return granted.ID, nil
}

// Next implements [supervisor.Orders].
func (s *SupervisionStore) Next(ctx context.Context, node string) ([]supervisor.Order, error) {
	resp, err := s.client.Get(ctx, s.orders(node), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", withCode(err))
	}
	if orders := ordersIn(resp.Kvs, node); len(orders) > 0 {
		return orders, nil
	}
	watching, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), noticeWaitMax)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision + 1), clientv3.WithFilterDelete()}
	changed := <-s.client.Watch(watching, s.orders(node), options...)
	if err := changed.Err(); err != nil {
		return nil, fmt.Errorf("watch orders: %w", withCode(err))
	}
	if resp, err = s.client.Get(ctx, s.orders(node), clientv3.WithPrefix()); err != nil {
		return nil, fmt.Errorf("read orders: %w", withCode(err))
	}
	return ordersIn(resp.Kvs, node), nil
}

// ordersIn returns the orders for a node. A value that is none counts as nothing: it stays until
// its lease ends or the next order for the component replaces it, so nobody may be kept from
// waiting by it.
func ordersIn(kvs []*mvccpb.KeyValue, node string) (orders []supervisor.Order) {
	for _, kv := range kvs {
		var o supervisor.Order
		if json.Unmarshal(kv.Value, &o) == nil && o.Node == node {
			orders = append(orders, o)
		}
	}
	return orders
}

// Done implements [supervisor.Orders].
func (s *SupervisionStore) Done(ctx context.Context, o supervisor.Order) error {
	key := s.orders(o.Node) + url.PathEscape(o.What)
	err := retryUncertain(ctx, func() error {
		resp, err := s.client.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return err
		}
		var is supervisor.Order
		if json.Unmarshal(resp.Kvs[0].Value, &is) == nil && (is.Process != o.Process || is.Sweep != o.Sweep) {
			return nil // a later one
		}
		_, err = s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", resp.Kvs[0].ModRevision)).Then(clientv3.OpDelete(key)).Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("remove an order: %w", withCode(err))
	}
	return nil
}

// Pause implements [supervisor.Control]. The ttl is rounded up to seconds.
func (s *SupervisionStore) Pause(ctx context.Context, p supervisor.Pause, ttl time.Duration) error {
	value, err := encodeJSON(p)
	if err != nil {
		return err
	}
	granted, err := s.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err == nil {
		err = retryUncertain(ctx, func() error {
			_, err := s.client.Put(ctx, s.pauses()+url.PathEscape(p.Slug), value, clientv3.WithLease(granted.ID))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("pause the restarts of %s: %w", p.Slug, withCode(err))
	}
	return nil
}

// Unpause implements [supervisor.Control].
func (s *SupervisionStore) Unpause(ctx context.Context, slug string) error {
	if err := retryUncertain(ctx, func() error {
		_, err := s.client.Delete(ctx, s.pauses()+url.PathEscape(slug))
		return err
	}); err != nil {
		return fmt.Errorf("allow the restarts of %s: %w", slug, withCode(err))
	}
	return nil
}

// Set implements [supervisor.Control].
func (s *SupervisionStore) Set(ctx context.Context, c supervisor.Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	value, err := encodeJSON(c)
	if err == nil {
		err = retryUncertain(ctx, func() error {
			_, err := s.client.Put(ctx, s.settings(), value)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("change the settings of supervision: %w", withCode(err))
	}
	return nil
}
