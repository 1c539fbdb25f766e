package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

const (
	// maxNested is how many nested transactions of two operations etcd takes in one, with its
	// default --max-txn-ops of 128.
	maxNested = 126
	// pageLength is how many checkpoints are read at once: in the worst case one has more than a
	// megabyte.
	pageLength = 100
	// maxSeen bounds the cached checkpoints; others are read before a save.
	maxSeen = 8 * change.MaxPartitions
)

// A Store keeps checkpoints, the origin and the gap log.
type Store struct {
	client     *Client
	partitions int

	mu struct {
		sync.Mutex

		origin originState // zero when unknown
		seen   map[checkpoint.Key]seen
	}
}

// A seen is the content of a checkpoint's key at a revision. It is useful as long as the key is
// unchanged.
type seen struct {
	revision   int64                  // 0 when there was none
	checkpoint *checkpoint.Checkpoint // nil when there was none; never changed
	trail      checkpoint.Trail
}

var (
	_ checkpoint.Store        = (*Store)(nil)
	_ checkpoint.Claimer      = (*Store)(nil)
	_ checkpoint.OriginKeeper = (*Store)(nil)
	_ checkpoint.GapKeeper    = (*Store)(nil)
	_ checkpoint.Rewinder     = (*Store)(nil)
	_ checkpoint.Adopter      = (*Store)(nil)
)

// NewStore makes the store of the client's checkpoints; shared ones must be of the given number of
// partitions. With 0 it reads those of any number and saves none of them.
func NewStore(client *Client, partitions int) *Store {
	s := &Store{client: client, partitions: partitions}
	s.mu.seen = make(map[checkpoint.Key]seen)
	return s
}

// Load implements [checkpoint.Store].
func (s *Store) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.checkpoint(checkpoint.Key{Subscriber: subscriber}))
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of %s: %w", subscriber, withCode(err))
	}
	all, unread := s.decodeAll(nil, resp.Kvs)
	shared, err := s.list(ctx, s.client.keys.partitions(subscriber))
	all = append(all, shared...)
	checkpoint.Sort(all)
	return all, errors.Join(unread, err)
}

// List implements [checkpoint.Store].
func (s *Store) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	all, err := s.list(ctx, s.client.keys.checkpoints())
	checkpoint.Sort(all)
	return all, err
}

// list reads the checkpoints whose keys begin with a prefix, in the order of the keys.
func (s *Store) list(ctx context.Context, prefix string) (all []checkpoint.Checkpoint, err error) {
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	for from, more := prefix, true; more; {
		page, failed := s.client.etcd.Get(ctx, from, end, clientv3.WithLimit(pageLength))
		if failed != nil {
			return nil, fmt.Errorf("read checkpoints: %w", withCode(failed))
		}
		var unread error
		all, unread = s.decodeAll(all, page.Kvs)
		err = errors.Join(err, unread)
		if more = page.More; more {
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	return all, err
}

// decodeAll appends the decoded checkpoints. The error lists undecodable ones.
func (s *Store) decodeAll(all []checkpoint.Checkpoint, kvs []*mvccpb.KeyValue) ([]checkpoint.Checkpoint, error) {
	var unread []error
	for _, kv := range kvs {
		c, _, err := checkpoint.Decode(string(kv.Key), s.client.keys.checkpoint, s.partitions, kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(unread...)
}

// Delete implements [checkpoint.Store].
func (s *Store) Delete(ctx context.Context, subscriber string) error {
	exclusive := s.client.keys.checkpoint(checkpoint.Key{Subscriber: subscriber})
	shared := s.client.keys.partitions(subscriber)
	err := retryUncertain(ctx, func() error {
		_, err := s.client.etcd.Txn(ctx).Then(
			clientv3.OpDelete(exclusive), clientv3.OpDelete(s.client.keys.history(exclusive), clientv3.WithPrefix()),
			clientv3.OpDelete(shared, clientv3.WithPrefix()), clientv3.OpDelete(s.client.keys.histories(subscriber), clientv3.WithPrefix()),
		).Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("delete checkpoints of %s: %w", subscriber, withCode(err))
	}
	return nil
}

// History implements [checkpoint.Store].
func (s *Store) History(ctx context.Context, k checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.history(s.client.keys.checkpoint(k)), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read history of %s: %w", k, withCode(err))
	}
	entries := make(checkpoint.History, 0, len(resp.Kvs))
	var unread []error
	for _, kv := range resp.Kvs {
		c, trail, err := checkpoint.DecodeEntry(string(kv.Key), k, kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		entries.Add(c, trail)
	}
	return entries.Newest(), errors.Join(unread...)
}

// Origin implements [checkpoint.OriginKeeper].
func (s *Store) Origin(ctx context.Context) (checkpoint.Origin, error) {
	stands, err := s.readOrigin(ctx)
	return stands.Origin, err
}

// Create implements [checkpoint.OriginKeeper].
func (s *Store) Create(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	if o.Partitions != s.partitions {
		return checkpoint.Origin{}, fmt.Errorf("an origin of %d partitions for checkpoints of %d", o.Partitions, s.partitions)
	}
	stands, err := s.client.create(ctx, o)
	return stands.Origin, err
}

// Complete implements [checkpoint.OriginKeeper].
func (s *Store) Complete(ctx context.Context, b checkpoint.Backend) (checkpoint.Origin, error) {
	stands, err := s.client.complete(ctx, s.partitions, b)
	return stands.Origin, err
}

// Adopt implements [checkpoint.Adopter]. The origin is compared by every transaction, so the one
// put ends every epoch before.
func (s *Store) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := s.client.adopt(ctx, last, next); err != nil {
		return fmt.Errorf("adopt: %w", withCode(err))
	}
	return nil
}

func (s *Store) readOrigin(ctx context.Context) (originState, error) {
	stands, err := s.client.origin(ctx, s.partitions)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.origin = stands
	}
	return stands, err
}

func (s *Store) forgetOrigin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.origin = originState{}
}

// read reads the content of a checkpoint's key, and caches it.
func (s *Store) read(ctx context.Context, k checkpoint.Key) (seen, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.checkpoint(k))
	if err != nil {
		return seen{}, fmt.Errorf("read checkpoint of %s: %w", k, err)
	}
	return s.look(k, resp.Kvs)
}

// look decodes the content of a checkpoint's key, and caches it.
func (s *Store) look(k checkpoint.Key, kvs []*mvccpb.KeyValue) (what seen, err error) {
	if len(kvs) > 0 {
		c, trail, err := checkpoint.Decode(string(kvs[0].Key), s.client.keys.checkpoint, s.partitions, kvs[0].Value)
		if err != nil {
			return seen{}, err
		}
		what = seen{revision: kvs[0].ModRevision, checkpoint: &c, trail: trail}
	}
	s.remember(k, what)
	return what, nil
}

func (s *Store) remember(k checkpoint.Key, what seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.seen) >= maxSeen {
		clear(s.mu.seen)
	}
	s.mu.seen[k] = what
}

func (s *Store) lastSeen(k checkpoint.Key) seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen[k]
}

// puts returns the operations, at most two, that replace the seen checkpoint, and their size. The
// new seen has no revision yet.
func (s *Store) puts(c checkpoint.Checkpoint, over seen) (puts []clientv3.Op, size int, after seen, err error) {
	next, entry := over.trail.Next(c)
	value, err := checkpoint.Encode(c, next)
	if err != nil {
		return nil, 0, seen{}, err
	}
	key := s.client.keys.checkpoint(c.Key)
	puts = []clientv3.Op{clientv3.OpPut(key, string(value))}
	size = len(key) + len(value)
	if entry {
		at := s.client.keys.entry(key, next.Slot())
		if value, err = checkpoint.Encode(c.Entry(), next); err != nil {
			return nil, 0, seen{}, err
		}
		puts = append(puts, clientv3.OpPut(at, string(value)))
		size = size + len(at) + len(value)
	}
	return puts, size, seen{checkpoint: &c, trail: next}, nil
}

// unchanged is the condition that a key has not been written since it was seen.
func unchanged(key string, what seen) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", what.revision)
}

// owns is the condition that the epoch owns the partition.
func (c *Client) owns(p change.Partition, e change.Epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.keys.owner(p)), "=", int64(e.Revision))
}

func fencedByOrigin(p change.Partition, e change.Epoch, stands originState) error {
	return fmt.Errorf("partition %d, epoch %s, incarnation is %d: %w", p, e, stands.Incarnation, checkpoint.ErrFenced)
}

func fencedByOwner(p change.Partition, e change.Epoch, owner []*mvccpb.KeyValue) error {
	if len(owner) == 0 {
		return fmt.Errorf("partition %d, epoch %s, nobody owns it: %w", p, e, checkpoint.ErrFenced)
	}
	return fmt.Errorf("partition %d, epoch %s, owned since revision %d: %w", p, e, owner[0].ModRevision, checkpoint.ErrFenced)
}

// ClaimTerms implements [checkpoint.Claimer]. The owner keys are the fence, so nothing is written.
func (s *Store) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]checkpoint.Checkpoint, error) {
	claimed := make([]checkpoint.Checkpoint, 0, len(terms))
	var unread *checkpoint.UnreadError
	for chunk := range slices.Chunk(terms, maxNested) {
		found, unreadable, err := s.claimTerms(ctx, subscriber, chunk)
		for errors.Is(err, checkpoint.ErrOriginMoved) {
			found, unreadable, err = s.claimTerms(ctx, subscriber, chunk)
		}
		if err != nil {
			return nil, fmt.Errorf("claim checkpoints of %s: %w", subscriber, err)
		}
		for p, err := range unreadable {
			unread = unread.Unread(p, err)
		}
		claimed = append(claimed, found...)
	}
	if unread != nil {
		return claimed, fmt.Errorf("claim checkpoints of %s: %w", subscriber, unread)
	}
	return claimed, nil
}

// claimTerms reads the checkpoints of at most MaxNested terms; unread says which of them cannot be.
func (s *Store) claimTerms(ctx context.Context, subscriber string, terms []change.Term) (claimed []checkpoint.Checkpoint, unread map[change.Partition]error, err error) {
	stands, err := s.readOrigin(ctx)
	if err != nil {
		return nil, nil, err
	}
	keyOf := func(t change.Term) checkpoint.Key {
		return checkpoint.Key{Subscriber: subscriber, Shared: true, Partition: t.Partition}
	}
	reads := make([]clientv3.Op, len(terms))
	for i, t := range terms {
		if stands.Fences(t.Epoch) {
			return nil, nil, fencedByOrigin(t.Partition, t.Epoch, stands)
		}
		reads[i] = clientv3.OpTxn(
			[]clientv3.Cmp{s.client.owns(t.Partition, t.Epoch)},
			[]clientv3.Op{clientv3.OpGet(s.client.keys.checkpoint(keyOf(t)))},
			[]clientv3.Op{clientv3.OpGet(s.client.keys.owner(t.Partition), clientv3.WithKeysOnly())},
		)
	}
	resp, err := s.client.nest(ctx, stands, reads)
	if err != nil {
		return nil, nil, withCode(err)
	}
	claimed, unread = make([]checkpoint.Checkpoint, len(terms)), make(map[change.Partition]error)
	for i, t := range terms {
		read := resp.Responses[i].GetResponseTxn()
		kvs := read.Responses[0].GetResponseRange().Kvs
		if !read.Succeeded {
			return nil, nil, fencedByOwner(t.Partition, t.Epoch, kvs)
		}
		what, err := s.look(keyOf(t), kvs)
		if err != nil {
			if !checkpoint.IsDamage(err) {
				return nil, nil, err
			}
			unread[t.Partition] = err
			continue
		}
		claimed[i] = checkpoint.Checkpoint{Key: keyOf(t), Partitions: s.partitions}
		if what.checkpoint != nil {
			claimed[i] = what.checkpoint.Clone()
		}
	}
	return claimed, unread, nil
}

// ClaimName implements [checkpoint.Claimer]. A claim with an unknown outcome is repeated, because
// it is idempotent for the same process.
func (s *Store) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	first, err := first.Trimmed()
	var claimed checkpoint.Checkpoint
	for done := false; err == nil && !done; {
		err = retryUncertain(ctx, func() error {
			claimed, done, err = s.claimName(ctx, c, first)
			return err
		})
	}
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("claim subscriber %q: %w", first.Subscriber, withCode(err))
	}
	return claimed, nil
}

// claimName makes one attempt; done is false if another process has written the checkpoint
// meanwhile.
func (s *Store) claimName(ctx context.Context, c checkpoint.Claim, next checkpoint.Checkpoint) (claimed checkpoint.Checkpoint, done bool, err error) {
	what, err := s.read(ctx, next.Key)
	if err != nil {
		return next, false, err
	}
	claim, err := c.Claimed(what.checkpoint, time.Now())
	if err != nil {
		return next, false, err
	}
	key := s.client.keys.checkpoint(next.Key)
	var puts []clientv3.Op
	var after seen
	if what.checkpoint == nil {
		if err := s.hasRoom(ctx, next.Subscriber); err != nil {
			return next, false, err
		}
		next.Claim = claim
		puts, _, after, err = s.puts(next, what)
	} else {
		next = what.checkpoint.Clone()
		next.Claim = claim
		after = seen{checkpoint: &next, trail: what.trail} // who saves may change, and the history does not
		var value []byte
		value, err = checkpoint.Encode(next, what.trail)
		puts = []clientv3.Op{clientv3.OpPut(key, string(value))}
	}
	if err != nil {
		return next, false, err
	}
	resp, err := s.client.etcd.Txn(ctx).If(unchanged(key, what)).Then(puts...).Commit()
	if err != nil || !resp.Succeeded {
		return next, false, err
	}
	after.revision = resp.Header.Revision
	s.remember(next.Key, after)
	if what.revision == 0 {
		err = s.makeRoom(ctx, next.Subscriber)
	}
	return next.Clone(), true, err
}

// hasRoom returns an error if the identity of a new exclusive subscriber has too many.
func (s *Store) hasRoom(ctx context.Context, subscriber string) error {
	owner := checkpoint.Owner(subscriber)
	if owner == "" {
		return nil
	}
	all, err := s.client.etcd.Get(ctx, s.client.keys.owned(owner), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	return checkpoint.HasRoom(subscriber, int(all.Count))
}

// makeRoom deletes the exclusive subscribers without an identity, whether or not they can be read,
// that were saved longest ago, as far as there are too many. To count them etcd walks over all, so
// it is asked only where one is new.
func (s *Store) makeRoom(ctx context.Context, subscriber string) error {
	if checkpoint.Owner(subscriber) != "" {
		return nil
	}
	prefix := s.client.keys.exclusive()
	all, err := s.client.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || all.Count <= checkpoint.MaxSubscribers {
		return err
	}
	resp, err := s.client.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return err
	}
	oldest := slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return s.client.keys.isOwned(string(kv.Key)) })
	oldest = oldest[:min(max(len(oldest)-checkpoint.MaxSubscribers, 0), maxNested)]
	if len(oldest) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(oldest))
	for i, kv := range oldest {
		key := string(kv.Key)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{unchanged(key, seen{revision: kv.ModRevision})}, []clientv3.Op{
			clientv3.OpDelete(key), clientv3.OpDelete(s.client.keys.history(key), clientv3.WithPrefix()),
		}, nil)
	}
	_, err = s.client.etcd.Txn(ctx).Then(deletes...).Commit()
	return err
}

// Rewind implements [checkpoint.Rewinder].
func (s *Store) Rewind(ctx context.Context, k checkpoint.Key, to change.Position, by, why string) (checkpoint.Checkpoint, error) {
	repairs := false
	read := func(ctx context.Context, k checkpoint.Key) (what seen, err error) {
		what, err = s.read(ctx, k)
		if repairs = fault.Of(err) == fault.CheckpointCorrupt; repairs {
			return s.lastEntry(ctx, k, err)
		}
		return what, err
	}
	moved, err := s.move(ctx, k, read, func(stands *checkpoint.Checkpoint, o checkpoint.Origin) (checkpoint.Checkpoint, error) {
		switch {
		case stands == nil:
			return checkpoint.Checkpoint{}, fmt.Errorf("%s: %w", k, checkpoint.ErrNone)
		case repairs:
			return stands.Repaired(to, o.Incarnation, by, why)
		}
		return stands.Rewound(to, o.Incarnation, by, why)
	})
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("rewind: %w", withCode(err))
	}
	return moved, nil
}

// Put implements [checkpoint.Rewinder].
func (s *Store) Put(ctx context.Context, c checkpoint.Checkpoint) error {
	_, err := s.move(ctx, c.Key, s.read, func(stands *checkpoint.Checkpoint, o checkpoint.Origin) (checkpoint.Checkpoint, error) {
		return c.Imported(stands, o)
	})
	if err != nil {
		return fmt.Errorf("put: %w", withCode(err))
	}
	return nil
}

// lastEntry returns the newest entry of the history of a checkpoint that cannot be read, to be
// written in its place. Without one, it returns why the checkpoint cannot be read.
func (s *Store) lastEntry(ctx context.Context, k checkpoint.Key, unread error) (seen, error) {
	key := s.client.keys.checkpoint(k)
	resp, err := s.client.etcd.Txn(ctx).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()), clientv3.OpGet(s.client.keys.history(key), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return seen{}, fmt.Errorf("read history of %s: %w", k, err)
	}
	row := resp.Responses[0].GetResponseRange().Kvs
	var entries checkpoint.History
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		if c, trail, err := checkpoint.DecodeEntry(string(kv.Key), k, kv.Value); err == nil {
			entries.Add(c, trail)
		}
	}
	last, trail, ok := entries.Last()
	if !ok || len(row) == 0 {
		return seen{}, unread
	}
	return seen{revision: row[0].ModRevision, checkpoint: &last, trail: trail}, nil
}

// move replaces a checkpoint at an operator's request. If a save comes between the read and the
// write, it reads again. After a lost reply it recognizes its own write by the generation and the
// time.
func (s *Store) move(
	ctx context.Context, k checkpoint.Key,
	read func(context.Context, checkpoint.Key) (seen, error), want func(*checkpoint.Checkpoint, checkpoint.Origin) (checkpoint.Checkpoint, error),
) (next checkpoint.Checkpoint, err error) {
	sent := false // the outcome of the write is unknown
	try := func() (done bool, err error) {
		stands, err := s.readOrigin(ctx)
		if err != nil {
			return false, err
		}
		what, err := read(ctx, k)
		if err != nil {
			return false, err
		}
		is := what.checkpoint
		isWritten := is != nil && is.Generation == next.Generation && is.At.Equal(next.At) && is.By == next.By
		if sent && isWritten {
			return true, nil
		}
		if next, err = want(what.checkpoint, stands.Origin); err != nil {
			return false, err
		}
		puts, _, after, err := s.puts(next, what)
		if err != nil {
			return false, err
		}
		resp, err := s.client.etcd.Txn(ctx).If(s.client.is(stands), unchanged(s.client.keys.checkpoint(k), what)).Then(puts...).Commit()
		if sent = err != nil; sent || !resp.Succeeded {
			return false, err
		}
		after.revision = resp.Header.Revision
		s.remember(k, after)
		return true, nil
	}
	for done := false; err == nil && !done; {
		err = retryUncertain(ctx, func() error {
			done, err = try()
			return err
		})
	}
	return next.Clone(), err
}
