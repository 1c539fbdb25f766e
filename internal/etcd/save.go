package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

const (
	// maxBytes bounds the marks of one transaction; etcd refuses requests above 1.5 MiB (--max-request-bytes).
	maxBytes = 1 << 20
	// trailBytes is about what a trail and a generation add to a mark.
	trailBytes = 128
)

// A write is a mark on its way into the store.
type write struct {
	mark  checkpoint.Mark // as it is kept
	size  int             // of what it puts, about
	at    int             // its place among the marks given to Save
	after seen
}

// Save implements [checkpoint.Store]. As many marks as fit go into one transaction; those that met another mark than the
// last seen follow in a further one.
func (s *Store) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	results := make([]error, len(marks))
	queue := make([]write, 0, len(marks))
	for i, m := range marks {
		w := write{mark: m.Trimmed(), at: i}
		value, err := record.EncodeMark(w.mark, checkpoint.Trail{}, s.partitions)
		if err != nil {
			results[i] = err
			continue
		}
		w.size = 2 * (len(value) + trailBytes) // once as the mark, once as an entry of the history
		queue = append(queue, w)
	}
	for len(queue) > 0 {
		n := fitting(queue)
		again, err := s.insist(ctx, queue[:n], results)
		if err != nil {
			for _, w := range queue[:n] {
				if results[w.at] != nil {
					continue // fenced already
				}
				results[w.at] = fmt.Errorf("save mark of partition %d: %w", w.mark.Partition, Named(err))
			}
		}
		queue = append(queue[n:], again...)
	}
	return results
}

// fitting returns how many of the writes fit into one transaction, at least one.
func fitting(queue []write) int {
	bytes := 0
	for n, w := range queue {
		bytes += w.size
		if n == MaxNested || n > 0 && bytes > maxBytes {
			return n
		}
	}
	return len(queue)
}

// insist commits writes until it is known whether that was done. One that is fenced after an attempt of which that is not known may have
// been carried out before: nothing is known of it.
func (s *Store) insist(ctx context.Context, batch []write, results []error) (again []write, err error) {
	doubts := make(map[int]error)
	err = Insist(ctx, func() error {
		again, err = s.commit(ctx, batch, results)
		for _, w := range batch {
			if err != nil && results[w.at] == nil {
				doubts[w.at] = err
			}
		}
		return err
	})
	for at, doubt := range doubts {
		if errors.Is(results[at], checkpoint.ErrFenced) {
			results[at] = fmt.Errorf("save a mark that is fenced by now: %w", Named(doubt))
		}
	}
	return again, err
}

// commit makes one transaction of the writes. It fills in the results of those that are settled by it and returns the
// others; an error says that of those without a result nothing is known.
func (s *Store) commit(ctx context.Context, batch []write, results []error) (again []write, err error) {
	stands, err := s.standing(ctx, batch)
	if err != nil {
		return nil, err
	}
	writes := make([]write, 0, len(batch))
	nested := make([]clientv3.Op, 0, len(batch))
	for _, w := range batch {
		if stands.Fences(w.mark.Epoch) {
			results[w.at] = fencedByOrigin(w.mark.Partition, w.mark.Epoch, stands)
			continue
		}
		w.after = s.lastSeen(w.mark.Partition)
		if results[w.at] = w.after.fences(w.mark); results[w.at] != nil {
			continue
		}
		w.mark.Generation = max(w.mark.Generation, w.after.generation)
		op, err := s.nested(&w)
		if err != nil {
			results[w.at] = err
			continue
		}
		writes = append(writes, w)
		nested = append(nested, op)
	}
	if len(writes) == 0 {
		return nil, nil
	}
	resp, err := s.client.Nest(ctx, stands, nested)
	if errors.Is(err, checkpoint.ErrOriginMoved) {
		s.forgetOrigin()
		return writes, nil
	}
	if err != nil {
		return nil, err
	}
	for i, w := range writes {
		answer := resp.Responses[i].GetResponseTxn()
		switch {
		case !answer.Succeeded:
			owner, mark := answer.Responses[0].GetResponseRange(), answer.Responses[1].GetResponseRange()
			settled, err := s.readBack(w, owner.Kvs, mark.Kvs)
			if !settled {
				again = append(again, w)
			}
			results[w.at] = err
		case len(answer.Responses) > 0:
			w.after.revision = resp.Header.Revision
			s.remember(w.mark.Partition, w.after)
		}
	}
	return again, nil
}

// nested is the transaction of one mark. A mark that stands before the one last seen is not put: only the fence is asked. What is
// seen after a put is noted in w.
func (s *Store) nested(w *write) (clientv3.Op, error) {
	p := w.mark.Partition
	expected := []clientv3.Cmp{
		s.client.owns(p, w.mark.Epoch),
		clientv3.Compare(clientv3.ModRevision(s.client.keys.mark(p)), "=", w.after.revision),
	}
	var puts []clientv3.Op
	if w.mark.Position.After(w.after.position) {
		var err error
		if puts, w.after, err = s.puts(w.mark, w.after.trail); err != nil {
			return clientv3.Op{}, err
		}
	}
	return clientv3.OpTxn(expected, puts, []clientv3.Op{
		clientv3.OpGet(s.client.keys.Owner(p), clientv3.WithKeysOnly()), clientv3.OpGet(s.client.keys.mark(p)),
	}), nil
}

// puts are the operations, at most two, that write a mark which follows a trail. What is to be seen then has no revision yet.
func (s *Store) puts(m checkpoint.Mark, t checkpoint.Trail) ([]clientv3.Op, seen, error) {
	next, entry := t.Next(m)
	value, err := record.EncodeMark(m, next, s.partitions)
	if err != nil {
		return nil, seen{}, err
	}
	puts := []clientv3.Op{clientv3.OpPut(s.client.keys.mark(m.Partition), string(value))}
	if entry {
		puts = append(puts, clientv3.OpPut(s.client.keys.entry(m.Partition, next.Slot()), string(value)))
	}
	return puts, seen{position: m.Position.Clone(), generation: m.Generation, trail: next}, nil
}

// readBack decides a write that met another owner or another mark than it expected. It is not settled when the mark that
// stands, which is the last seen now, stands before it.
func (s *Store) readBack(w write, owner, mark []*mvccpb.KeyValue) (settled bool, err error) {
	if len(owner) == 0 || uint64(owner[0].ModRevision) != w.mark.Epoch.Revision {
		return true, fencedByOwner(w.mark.Partition, w.mark.Epoch, owner)
	}
	stored, err := s.look(w.mark.Partition, mark)
	if err != nil && !errors.Is(err, checkpoint.ErrNoMark) {
		return true, err
	}
	if fenced := s.lastSeen(w.mark.Partition).fences(w.mark); fenced != nil {
		return true, fenced
	}
	return !w.mark.Position.After(stored.Position), nil
}

// standing returns the origin as it was last seen, or reads it where it is unknown or not that of all the writes.
func (s *Store) standing(ctx context.Context, batch []write) (Standing, error) {
	s.mu.Lock()
	stands := s.mu.origin
	s.mu.Unlock()
	if stands.Revision == 0 || slices.ContainsFunc(batch, func(w write) bool { return stands.Fences(w.mark.Epoch) }) {
		return s.readOrigin(ctx)
	}
	return stands, nil
}

func (s *Store) forgetOrigin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.origin = Standing{}
}
