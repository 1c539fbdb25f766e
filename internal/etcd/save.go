package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
)

// maxBytes bounds what one transaction writes, unless it is a single checkpoint; etcd refuses
// requests above 1.5 MiB (--max-request-bytes).
const maxBytes = 1 << 20

// A write is a checkpoint on its way into the store.
type write struct {
	checkpoint checkpoint.Checkpoint // trimmed
	result     *error                // the outcome that Save returns
	doubt      error                 // error of an earlier attempt with an unknown outcome

	over    seen  // the expected state
	after   seen  // the state afterwards
	puts    int   // how many operations write it
	refused error // its error if the stored state is still over
}

// Save implements [checkpoint.Store]. As many checkpoints as fit go into one transaction; those
// that met another one than the last seen follow in a further one.
func (s *Store) Save(ctx context.Context, checkpoints []checkpoint.Checkpoint) []error {
	results := make([]error, len(checkpoints))
	queue := make([]*write, 0, len(checkpoints))
	for i, c := range checkpoints {
		c, err := c.Trimmed()
		switch {
		case err != nil:
			results[i] = err
		case c.Shared && c.Partitions != s.partitions:
			results[i] = fmt.Errorf("%s of %d partitions, there are %d: %w", c.Key, c.Partitions, s.partitions, checkpoint.ErrUnsavable)
		default:
			queue = append(queue, &write{checkpoint: c, result: &results[i]})
		}
	}
	for len(queue) > 0 {
		var batch, rest []*write
		err := retryUncertain(ctx, func() (err error) {
			batch, rest, err = s.commit(ctx, queue)
			return err
		})
		switch {
		case errors.Is(err, rpctypes.ErrRequestTooLarge) && len(batch) > 1: // for an etcd with a lower limit: each by itself
			for _, w := range batch {
				results := s.Save(ctx, []checkpoint.Checkpoint{w.checkpoint})
				*w.result = results[0]
			}
		case errors.Is(err, rpctypes.ErrRequestTooLarge):
			*batch[0].result = fmt.Errorf("save checkpoint of %s: %w: %w", batch[0].checkpoint.Key, checkpoint.ErrUnsavable, err)
		case err != nil:
			for _, w := range batch {
				*w.result = fmt.Errorf("save checkpoint of %s: %w", w.checkpoint.Key, withCode(err))
			}
		}
		queue = rest
	}
	return results
}

// settle returns the outcome of a write. A write that is refused after an attempt with an unknown
// outcome may have been saved before.
func (w *write) settle(err error) {
	if w.doubt != nil && (errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrRewound)) {
		err = fmt.Errorf("save a checkpoint that is refused by now: %w", withCode(w.doubt))
	}
	*w.result = err
}

// commit makes one transaction of the first writes of a queue, which it settles where it can. It
// returns those that it was made of, and those that are left, of the batch and of the rest of the
// queue; with an error nothing is known of the batch, which is not among those left.
func (s *Store) commit(ctx context.Context, queue []*write) (batch, rest []*write, err error) {
	stands, err := s.standing(ctx, queue)
	if err != nil {
		return queue, nil, err
	}
	bytes := 0
	nested := make([]clientv3.Op, 0, min(len(queue), maxNested))
	for i, w := range queue {
		if len(batch) == maxNested {
			rest = queue[i:]
			break
		}
		if c := w.checkpoint; c.Shared && stands.Fences(c.Epoch) {
			w.settle(fencedByOrigin(c.Partition, c.Epoch, stands))
			continue
		}
		op, size, err := s.nested(w)
		if err != nil {
			w.settle(err)
			continue
		}
		if bytes += size; len(batch) > 0 && bytes > maxBytes {
			rest = queue[i:]
			break
		}
		batch, nested = append(batch, w), append(nested, op)
	}
	if len(batch) == 0 {
		return nil, rest, nil
	}
	resp, err := s.client.nest(ctx, stands, nested)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		s.forgetOrigin()
		return nil, slices.Concat(batch, rest), nil
	}
	if err != nil {
		for _, w := range batch {
			w.doubt = err
		}
		return batch, rest, err
	}
	var again []*write
	for i, w := range batch {
		answer := resp.Responses[i].GetResponseTxn()
		switch {
		case !answer.Succeeded:
			if !s.readBack(w, answer.Responses) {
				again = append(again, w)
			}
			continue
		case w.puts > 0:
			w.after.revision = resp.Header.Revision
			s.remember(w.checkpoint.Key, w.after)
		}
		w.settle(w.refused)
	}
	return nil, slices.Concat(rest, again), nil
}

// nested returns the transaction of one checkpoint, and the size of its puts. A checkpoint that
// changes nothing or would be refused has no puts: the transaction only checks the fence, and that
// the last seen checkpoint is unchanged.
func (s *Store) nested(w *write) (op clientv3.Op, size int, err error) {
	key := s.client.keys.checkpoint(w.checkpoint.Key)
	w.over = s.lastSeen(w.checkpoint.Key)
	w.after = seen{}
	w.puts = 0
	w.refused = nil
	merged, changed, err := checkpoint.Merge(w.over.checkpoint, w.checkpoint)
	var puts []clientv3.Op
	switch {
	case !w.checkpoint.Shared && w.over.checkpoint == nil:
		w.refused = fmt.Errorf("%s has not been claimed: %w", w.checkpoint.Key, checkpoint.ErrFenced)
	case err != nil:
		w.refused = err
	case changed:
		merged = merged.Clone()
		if merged, err = merged.Trimmed(); err != nil {
			return op, 0, err
		}
		if puts, size, w.after, err = s.puts(merged, w.over); err != nil {
			return op, 0, err
		}
		w.puts = len(puts)
	}
	expected := []clientv3.Cmp{unchanged(key, w.over)}
	otherwise := []clientv3.Op{clientv3.OpGet(key)}
	if c := w.checkpoint; c.Shared {
		expected = append(expected, s.client.owns(c.Partition, c.Epoch))
		otherwise = append(otherwise, clientv3.OpGet(s.client.keys.owner(c.Partition), clientv3.WithKeysOnly()))
	}
	return clientv3.OpTxn(expected, puts, otherwise), size, nil
}

// readBack decides a write that found another owner or another checkpoint than expected. It is not
// settled if it must be merged with the stored checkpoint, which is now the last seen one.
func (s *Store) readBack(w *write, read []*etcdserverpb.ResponseOp) (settled bool) {
	c := w.checkpoint
	if c.Shared {
		owner := read[1].GetResponseRange().Kvs
		if len(owner) == 0 || uint64(owner[0].ModRevision) != c.Epoch.Revision {
			w.settle(fencedByOwner(c.Partition, c.Epoch, owner))
			return true
		}
	}
	what, err := s.look(c.Key, read[0].GetResponseRange().Kvs)
	if err != nil {
		w.settle(err)
		return true
	}
	if what.checkpoint == nil && !c.Shared {
		w.settle(fmt.Errorf("%s has not been claimed: %w", c.Key, checkpoint.ErrFenced))
		return true
	}
	_, changed, err := checkpoint.Merge(what.checkpoint, c)
	if err == nil && changed {
		return false
	}
	w.settle(err)
	return true
}

// standing returns the origin as it was last seen, or reads it where it is unknown or not that of
// all the writes.
func (s *Store) standing(ctx context.Context, queue []*write) (originState, error) {
	s.mu.Lock()
	stands := s.mu.origin
	s.mu.Unlock()
	other := func(w *write) bool { return w.checkpoint.Shared && stands.Fences(w.checkpoint.Epoch) }
	if stands.Revision == 0 || slices.ContainsFunc(queue, other) {
		return s.readOrigin(ctx)
	}
	return stands, nil
}
