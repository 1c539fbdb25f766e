package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/notice"
)

// NoticeConfig configures a Store.
type NoticeConfig struct {
	// Process is a random id of this process. Required, without slashes.
	Process string
	// Keep is how many notices of the whole cluster are kept of each history. Defaults to 1000.
	Keep int
	// TTL is how long a notice is kept at least, AuditTTL one of the audit log. Default to 24 h and
	// 90 days.
	TTL, AuditTTL time.Duration
}

// noticeLeases is how many leases of a process live at a time.
const noticeLeases = 24

// A NoticeStore is the history of the client's cluster.
type NoticeStore struct {
	cfg    NoticeConfig
	client *clientv3.Client
	prefix string

	mu struct {
		sync.Mutex

		leases map[time.Duration]noticeLease // by the TTL of the keys under them

		reign reign           // of the last reading
		read  map[string]bool // keys that have been read
		order []string        // the same, oldest first
	}
}

// A noticeLease is one under which notices are written, until some time.
type noticeLease struct {
	id    clientv3.LeaseID
	until time.Time
}

// A reign is one leader's of one etcd. An etcd that was restored, whose revisions count again from
// where the copy was made, has another one.
type reign struct{ cluster, term uint64 }

// noticeWaitMax bounds a wait: a watch from a revision that a restored etcd has yet to come to
// hears nothing until then.
const noticeWaitMax = 5 * time.Second

var _ notice.Store = (*NoticeStore)(nil)

// NewNoticeStore makes a Store.
func NewNoticeStore(c *Client, cfg NoticeConfig) *NoticeStore {
	cfg.Keep, cfg.TTL = cmp.Or(cfg.Keep, 1000), cmp.Or(cfg.TTL, 24*time.Hour)
	cfg.AuditTTL = max(cmp.Or(cfg.AuditTTL, 90*24*time.Hour), cfg.TTL)
	s := &NoticeStore{cfg: cfg, client: c.etcd, prefix: c.keys.notices()}
	s.mu.read, s.mu.leases = make(map[string]bool), make(map[time.Duration]noticeLease)
	return s
}

// Append implements [notice.Store].
func (s *NoticeStore) Append(ctx context.Context, notices []notice.Notice) error {
	add := func() error { return s.append(ctx, notices) }
	err := retryUncertain(ctx, add)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // the machine slept, or etcd was restored
		s.mu.Lock()
		clear(s.mu.leases)
		s.mu.Unlock()
		err = retryUncertain(ctx, add)
	}
	if err != nil {
		return fmt.Errorf("add notices: %w", withCode(err))
	}
	return nil
}

func (s *NoticeStore) append(ctx context.Context, notices []notice.Notice) error {
	ops := make([]clientv3.Op, 0, len(notices)+len(notice.Histories()))
	for _, n := range notices {
		ttl := s.cfg.TTL
		if n.Channel == notice.Audit {
			ttl = s.cfg.AuditTTL
		}
		lease, err := s.lease(ctx, ttl)
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(s.key(n), encodeNotice(n), clientv3.WithLease(lease)))
	}
	for _, h := range notice.Histories() { // that of the service counts all
		ops = append(ops, clientv3.OpGet(s.under(h), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	resp, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return err
	}
	var all, others int64
	for i, h := range notice.Histories() {
		count := resp.Responses[len(notices)+i].GetResponseRange().GetCount()
		if h == notice.Service {
			all = count
			continue
		}
		if others += count; count > int64(s.cfg.Keep) {
			if err := s.trim(ctx, h); err != nil {
				return err
			}
		}
	}
	if all-others > int64(s.cfg.Keep) {
		return s.trim(ctx, notice.Service)
	}
	return nil
}

// lease returns the current lease for notices with a TTL.
func (s *NoticeStore) lease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	now := time.Now()
	s.mu.Lock()
	lease := s.mu.leases[ttl]
	s.mu.Unlock()
	if lease.id != 0 && now.Before(lease.until) {
		return lease.id, nil
	}
	share := ttl / noticeLeases
	granted, err := s.client.Grant(ctx, int64((ttl+share+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.leases[ttl] = noticeLease{granted.ID, now.Add(share)}
	return granted.ID, nil
}

// deletions is how many keys go in one transaction: etcd takes 128 operations.
const deletions = 100

// trim deletes the oldest notices of a history beyond the bound. Two nodes that do so at once
// delete the same ones.
func (s *NoticeStore) trim(ctx context.Context, h notice.History) error {
	resp, err := s.client.Get(ctx, s.under(h), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(s.ours(resp.Kvs), func(kv *mvccpb.KeyValue) bool { return s.historyOf(string(kv.Key)) != h })
	over := kept[:max(len(kept)-s.cfg.Keep, 0)]
	for batch := range slices.Chunk(over, deletions) {
		ops := make([]clientv3.Op, len(batch))
		for i, kv := range batch {
			ops[i] = clientv3.OpDelete(string(kv.Key))
		}
		if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// Read implements [notice.Store]. A place is a revision. Where that may be of before a restore,
// everything is read that was not read before.
func (s *NoticeStore) Read(ctx context.Context, after int64) ([]notice.Notice, int64, error) {
	resp, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithMinCreateRev(after+1))
	again := err == nil && after > 0 && s.restored(resp.Header, after)
	if again {
		resp, err = s.client.Get(ctx, s.prefix, clientv3.WithPrefix())
	}
	if err != nil {
		return nil, after, fmt.Errorf("read notices: %w", withCode(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reign = reign{resp.Header.ClusterId, resp.Header.RaftTerm}
	var notices []notice.Notice
	for _, kv := range s.ours(resp.Kvs) {
		if process, _, _ := s.parse(string(kv.Key)); process == s.cfg.Process || s.noteLocked(string(kv.Key)) && again {
			continue
		}
		if n, err := decodeNotice(kv.Value); err == nil {
			notices = append(notices, n)
		}
	}
	notices = notice.Newest(notices, s.cfg.Keep) // another node keeps more
	return notices, resp.Header.GetRevision(), nil
}

// restored reports whether a place may be of before a restore: etcd has not come so far, or has had
// an election since the last reading.
func (s *NoticeStore) restored(now *pb.ResponseHeader, place int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Revision < place || s.mu.reign != reign{now.ClusterId, now.RaftTerm}
}

// noteLocked notes that a key has been read, and reports whether it was before.
func (s *NoticeStore) noteLocked(key string) bool {
	if s.mu.read[key] {
		return true
	}
	s.mu.read[key] = true
	s.mu.order = append(s.mu.order, key)
	if over := len(s.mu.order) - 2*len(notice.Histories())*s.cfg.Keep; over > 0 {
		for _, old := range s.mu.order[:over] {
			delete(s.mu.read, old)
		}
		s.mu.order = slices.Delete(s.mu.order, 0, over)
	}
	return false
}

// Wait implements [notice.Store].
func (s *NoticeStore) Wait(ctx context.Context, after int64) error {
	watching, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), noticeWaitMax)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(after + 1), clientv3.WithFilterDelete()}
	for resp := range s.client.Watch(watching, s.prefix, options...) {
		switch err := resp.Err(); {
		case errors.Is(err, rpctypes.ErrCompacted):
			return nil // who knows
		case err != nil:
			return fmt.Errorf("watch notices: %w", withCode(err))
		}
		for _, e := range resp.Events {
			if process, _, ok := s.parse(string(e.Kv.Key)); ok && process != s.cfg.Process {
				return nil
			}
		}
	}
	return context.Cause(ctx) // nil when it was long enough: who knows
}

// under is the prefix of the keys of a history; that of the service's is one of all. Earlier
// versions take the others' keys for none of notices.
func (s *NoticeStore) under(h notice.History) string {
	if h == notice.Service {
		return s.prefix
	}
	return s.prefix + ":" + string(h) + "/"
}

// historyOf returns the history of a key.
func (s *NoticeStore) historyOf(key string) notice.History {
	for _, h := range notice.Histories() {
		if h != notice.Service && strings.HasPrefix(key, s.under(h)) {
			return h
		}
	}
	return notice.Service
}

// key is the key of a notice of this process.
func (s *NoticeStore) key(n notice.Notice) string {
	return fmt.Sprintf("%s%s/%020d", s.under(n.History()), s.cfg.Process, n.ID)
}

// parse takes a key apart; ok says whether it is one of a notice.
func (s *NoticeStore) parse(key string) (process string, id uint64, ok bool) {
	process, number, _ := strings.Cut(strings.TrimPrefix(key, s.under(s.historyOf(key))), "/")
	id, err := strconv.ParseUint(number, 10, 64)
	return process, id, err == nil && process != "" && len(number) == 20
}

// ours returns the keys of notices in the order of the history.
func (s *NoticeStore) ours(kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		_, _, ok := s.parse(string(kv.Key))
		return !ok
	})
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return kvs // of one transaction: by key, as etcd returned them
}
