package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/etcd/gaplog"
	"github.com/mongostream/streamer/internal/etcd/row"
)

// MaxNested is how many nested transactions of two operations etcd takes in one, with its default --max-txn-ops of 128.
const MaxNested = 126

// A Store keeps marks and the origin, and the rows of gateways.
type Store struct {
	*row.Keeper
	*gaplog.Log

	client     *Client
	partitions int

	mu struct {
		sync.Mutex

		origin Standing // zero when unknown
		seen   map[change.Partition]seen
	}
}

// A seen is what a mark's key was seen to hold: at that revision the mark stood there. It is true for ever, and of use as
// long as the key is not written.
type seen struct {
	revision   int64 // 0 when there was none
	position   change.Position
	generation uint64
	trail      checkpoint.Trail
}

// fences returns ErrFenced for a mark of an earlier generation.
func (s seen) fences(m checkpoint.Mark) error {
	if m.Generation == 0 || m.Generation >= s.generation {
		return nil
	}
	return fmt.Errorf("partition %d, generation %d of %d: %w", m.Partition, m.Generation, s.generation, checkpoint.ErrFenced)
}

var (
	_ checkpoint.Store         = (*Store)(nil)
	_ checkpoint.Claimer       = (*Store)(nil)
	_ checkpoint.OriginKeeper  = (*Store)(nil)
	_ checkpoint.HistoryKeeper = (*Store)(nil)
	_ checkpoint.GapKeeper     = (*Store)(nil)
	_ checkpoint.Rewinder      = (*Store)(nil)
	_ checkpoint.RowKeeper     = (*Store)(nil)
	_ checkpoint.Adopter       = (*Store)(nil)
)

// NewStore makes the store of the client's marks, which must be of the given number of partitions. With 0 it reads those of
// any number and saves none.
func NewStore(client *Client, partitions int) *Store {
	s := &Store{client: client, partitions: partitions, Keeper: row.NewKeeper(client.etcd, client.keys.rows(), Insist, Named)}
	s.Log = gaplog.New(client.etcd, client.keys.gaps(), partitions, Insist, Named)
	s.mu.seen = make(map[change.Partition]seen)
	return s
}

// Load implements [checkpoint.Store].
func (s *Store) Load(ctx context.Context, p change.Partition) (checkpoint.Mark, error) {
	resp, err := s.client.etcd.Get(ctx, s.client.keys.mark(p))
	if err != nil {
		return checkpoint.Mark{}, fmt.Errorf("read mark of partition %d: %w", p, Named(err))
	}
	return s.look(p, resp.Kvs)
}

// List implements [checkpoint.Store].
func (s *Store) List(ctx context.Context) ([]checkpoint.Mark, error) {
	prefix := s.client.keys.marks()
	resp, err := s.client.etcd.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list marks: %w", Named(err))
	}
	marks := make([]checkpoint.Mark, 0, len(resp.Kvs))
	var unread []error
	for _, kv := range resp.Kvs {
		m, err := s.listed(kv)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		marks = append(marks, m)
	}
	return marks, errors.Join(unread...)
}

// Delete implements [checkpoint.Store].
func (s *Store) Delete(ctx context.Context, p change.Partition) error {
	err := Insist(ctx, func() error {
		_, err := s.client.etcd.Txn(ctx).Then(
			clientv3.OpDelete(s.client.keys.mark(p)), clientv3.OpDelete(s.client.keys.history(p), clientv3.WithPrefix()),
		).Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("delete mark of partition %d: %w", p, Named(err))
	}
	return nil
}

// Claim implements [checkpoint.Claimer]. The owner keys are the fence, so nothing is written.
func (s *Store) Claim(ctx context.Context, terms []change.Term) ([]checkpoint.Mark, error) {
	marks := make([]checkpoint.Mark, 0, len(terms))
	for chunk := range slices.Chunk(terms, MaxNested) {
		found, err := s.claim(ctx, chunk)
		for errors.Is(err, checkpoint.ErrOriginMoved) {
			found, err = s.claim(ctx, chunk)
		}
		if err != nil {
			return nil, fmt.Errorf("claim marks: %w", err)
		}
		marks = append(marks, found...)
	}
	return marks, nil
}

// claim reads the marks of at most MaxNested terms.
func (s *Store) claim(ctx context.Context, terms []change.Term) ([]checkpoint.Mark, error) {
	stands, err := s.readOrigin(ctx)
	if err != nil {
		return nil, err
	}
	reads := make([]clientv3.Op, len(terms))
	for i, term := range terms {
		if stands.Fences(term.Epoch) {
			return nil, fencedByOrigin(term.Partition, term.Epoch, stands)
		}
		reads[i] = clientv3.OpTxn(
			[]clientv3.Cmp{s.client.owns(term.Partition, term.Epoch)},
			[]clientv3.Op{clientv3.OpGet(s.client.keys.mark(term.Partition))},
			[]clientv3.Op{clientv3.OpGet(s.client.keys.Owner(term.Partition), clientv3.WithKeysOnly())},
		)
	}
	resp, err := s.client.Nest(ctx, stands, reads)
	if err != nil {
		return nil, Named(err)
	}
	marks := make([]checkpoint.Mark, len(terms))
	for i, term := range terms {
		read := resp.Responses[i].GetResponseTxn()
		kvs := read.Responses[0].GetResponseRange().Kvs
		if !read.Succeeded {
			return nil, fencedByOwner(term.Partition, term.Epoch, kvs)
		}
		marks[i], err = s.look(term.Partition, kvs)
		if errors.Is(err, checkpoint.ErrNoMark) {
			marks[i].Partition = term.Partition
		} else if err != nil {
			return nil, err
		}
	}
	return marks, nil
}

// Origin implements [checkpoint.OriginKeeper].
func (s *Store) Origin(ctx context.Context) (checkpoint.Origin, error) {
	stands, err := s.readOrigin(ctx)
	return stands.Origin, err
}

// Found implements [checkpoint.OriginKeeper]. Where its answer gets lost, founding again tells which origin stands.
func (s *Store) Found(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	if o.Partitions != s.partitions {
		return checkpoint.Origin{}, fmt.Errorf("an origin of %d partitions for marks of %d", o.Partitions, s.partitions)
	}
	stands, err := s.client.found(ctx, o)
	return stands.Origin, err
}

// Complete implements [checkpoint.OriginKeeper].
func (s *Store) Complete(ctx context.Context, b checkpoint.Backend) (checkpoint.Origin, error) {
	stands, err := s.client.complete(ctx, s.partitions, b)
	return stands.Origin, err
}

// Adopt implements [checkpoint.Adopter]. The origin is compared by every transaction, so the one put ends every epoch before.
func (s *Store) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := s.client.adopt(ctx, last, next); err != nil {
		return fmt.Errorf("adopt: %w", Named(err))
	}
	return nil
}

func (s *Store) readOrigin(ctx context.Context) (Standing, error) {
	stands, err := s.client.Origin(ctx, s.partitions)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.origin = stands
	}
	return stands, err
}

// look decodes what the key of a partition's mark was read to hold, and remembers it.
func (s *Store) look(p change.Partition, kvs []*mvccpb.KeyValue) (checkpoint.Mark, error) {
	m, what, err := s.decode(p, kvs)
	if err == nil || errors.Is(err, checkpoint.ErrNoMark) {
		s.remember(p, what)
	}
	return m, err
}

// decode decodes what the key of a partition's mark was read to hold.
func (s *Store) decode(p change.Partition, kvs []*mvccpb.KeyValue) (checkpoint.Mark, seen, error) {
	if len(kvs) == 0 {
		return checkpoint.Mark{}, seen{}, checkpoint.ErrNoMark
	}
	m, trail, err := record.DecodeMark(string(kvs[0].Key), p, s.partitions, kvs[0].Value)
	if err != nil {
		return checkpoint.Mark{}, seen{}, err
	}
	return m, seen{revision: kvs[0].ModRevision, position: m.Position.Clone(), generation: m.Generation, trail: trail}, nil
}

func (s *Store) listed(kv *mvccpb.KeyValue) (checkpoint.Mark, error) {
	p, err := PartitionOf(s.client.keys.marks(), string(kv.Key))
	if err != nil {
		return checkpoint.Mark{}, err
	}
	m, _, err := record.DecodeMark(string(kv.Key), p, s.partitions, kv.Value)
	return m, err
}

func (s *Store) remember(p change.Partition, what seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.seen[p] = what
}

func (s *Store) lastSeen(p change.Partition) seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen[p]
}

// owns is the condition that the epoch owns the partition.
func (c *Client) owns(p change.Partition, e change.Epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.keys.Owner(p)), "=", int64(e.Revision))
}

func fencedByOrigin(p change.Partition, e change.Epoch, stands Standing) error {
	return fmt.Errorf("partition %d, epoch %s, incarnation is %d: %w", p, e, stands.Incarnation, checkpoint.ErrFenced)
}

func fencedByOwner(p change.Partition, e change.Epoch, owner []*mvccpb.KeyValue) error {
	if len(owner) == 0 {
		return fmt.Errorf("partition %d, epoch %s, nobody owns it: %w", p, e, checkpoint.ErrFenced)
	}
	return fmt.Errorf("partition %d, epoch %s, owned since revision %d: %w", p, e, owner[0].ModRevision, checkpoint.ErrFenced)
}
