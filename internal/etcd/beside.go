package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A Beside is a mark on its way into the store inside a transaction of somebody else's, who compares the epoch and the origin.
type Beside struct {
	// If is to be compared, and Puts, of which there may be none, to be done.
	If   clientv3.Cmp
	Puts []clientv3.Op

	store *Store
	after seen
	of    change.Partition
}

// ReadMark is the operation that reads a partition's mark for Beside.
func (s *Store) ReadMark(p change.Partition) clientv3.Op {
	return clientv3.OpGet(s.client.keys.mark(p))
}

// Beside returns what writes a mark in the place of the one that was read. One that does not stand behind it is left out, as by Save; one of
// an earlier generation is ErrFenced.
func (s *Store) Beside(m checkpoint.Mark, read []*mvccpb.KeyValue) (Beside, error) {
	m = m.Trimmed()
	_, last, err := s.decode(m.Partition, read)
	if err != nil && !errors.Is(err, checkpoint.ErrNoMark) {
		return Beside{}, err
	}
	if err := last.fences(m); err != nil {
		return Beside{}, err
	}
	b := Beside{
		If:    clientv3.Compare(clientv3.ModRevision(s.client.keys.mark(m.Partition)), "=", last.revision),
		store: s, after: last, of: m.Partition,
	}
	if !m.Position.After(last.position) {
		return b, nil
	}
	m.Generation = max(m.Generation, last.generation)
	b.Puts, b.after, err = s.puts(m, last.trail)
	return b, err
}

// Wrote is to be told at which revision the transaction was made.
func (b Beside) Wrote(revision int64) {
	if len(b.Puts) > 0 {
		b.after.revision = revision
	}
	b.store.remember(b.of, b.after)
}
