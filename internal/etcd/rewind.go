package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// Rewind implements [checkpoint.Rewinder]. Deleting the owner key ends the term. A save that comes between the rewind's reading and
// its writing moves the mark, and the rewind begins again.
func (s *Store) Rewind(ctx context.Context, p change.Partition, to change.Position, by, why string) (checkpoint.Mark, error) {
	r := rewind{store: s, partition: p, to: to, by: by, why: why}
	for !r.done {
		if err := Insist(ctx, func() error { return r.try(ctx) }); err != nil {
			return checkpoint.Mark{}, fmt.Errorf("rewind: %w", Named(err))
		}
	}
	return r.mark, nil
}

// A rewind is under way.
type rewind struct {
	store     *Store
	partition change.Partition
	to        change.Position
	by, why   string

	mark checkpoint.Mark
	sent bool // nobody knows whether the mark was written
	done bool
}

// try makes one attempt.
func (r *rewind) try(ctx context.Context) error {
	s, key := r.store, r.store.client.keys.mark(r.partition)
	stands, err := s.readOrigin(ctx)
	if err != nil {
		return err
	}
	resp, err := s.client.etcd.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read mark of partition %d: %w", r.partition, err)
	}
	stored, after, err := s.decode(r.partition, resp.Kvs)
	before := &stored
	switch {
	case errors.Is(err, checkpoint.ErrNoMark):
		before = nil
	case err != nil:
		return err
	case r.sent && stored.Generation == r.mark.Generation && stored.At.Equal(r.mark.At) && stored.By == r.by:
		r.mark, r.done = stored, true
		return nil
	}
	if r.mark, err = stands.Rewound(r.partition, before, r.to, r.by, r.why); err != nil {
		return err
	}
	puts, now, err := s.puts(r.mark, after.trail)
	if err != nil {
		return err
	}
	txn, err := s.client.etcd.Txn(ctx).
		If(s.client.Is(stands), clientv3.Compare(clientv3.ModRevision(key), "=", after.revision)).
		Then(append(puts, clientv3.OpDelete(s.client.keys.Owner(r.partition)))...).
		Commit()
	if r.sent = err != nil; r.sent {
		return err
	}
	if r.done = txn.Succeeded; r.done {
		now.revision = txn.Header.Revision
		s.remember(r.partition, now)
	}
	return nil
}
