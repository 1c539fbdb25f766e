package partition

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Config configures a Set. Everything is required.
type Config struct {
	Cluster string
	Count   uint32
	Worker  Worker
	Room    *Room
	Counts  *Counts
}

// A Set is the lanes of one partitioning of a cluster. A cluster that is partitioned anew gets a new one.
type Set struct {
	cluster string
	count   uint32
	worker  Worker
	room    *Room
	counts  *Counts

	ctx    context.Context //nolint:containedctx // that of the lanes' goroutines, which begin one by one
	cancel context.CancelCauseFunc
	ended  sync.WaitGroup

	mu struct {
		sync.Mutex
		closed bool
		lanes  map[uint32]*Lane
		origin *Position // where partitions begin of which nothing is known, if that is known
	}
}

// ErrRetired ends the handlers of a partitioning that is over.
var ErrRetired = errors.New("the cluster has been partitioned anew")

// NewSet makes a Set whose partitions stand at the positions; of the others nothing is known. Its goroutines begin with the first batch of
// their partition and end with the context or with Retire; Close waits for them.
func NewSet(ctx context.Context, cfg Config, begin map[uint32]Position) *Set {
	s := &Set{cluster: cfg.Cluster, count: cfg.Count, worker: cfg.Worker, room: cfg.Room, counts: cfg.Counts}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.mu.lanes = make(map[uint32]*Lane)
	for partition, at := range begin {
		s.lane(partition).mu.have = Have{Known: true, At: at}
	}
	return s
}

// Cluster returns the cluster's id.
func (s *Set) Cluster() string { return s.cluster }

// Count returns the number of partitions.
func (s *Set) Count() uint32 { return s.count }

// lane returns a partition's. Under the mutex, or before others know the set.
func (s *Set) lane(partition uint32) *Lane {
	l := s.mu.lanes[partition]
	if l == nil {
		l = &Lane{set: s, partition: partition, woken: make(chan struct{}, 1)}
		s.mu.lanes[partition] = l
	}
	return l
}

// Push takes a batch of one of the partitions to its lane. It blocks while too much is waiting. Once the set is closed or its context has
// ended, batches are dropped. Only one goroutine may push for a source at a time.
func (s *Set) Push(ctx context.Context, source Source, b *streampb.Batch) error {
	q := queued{source: source, batch: b, size: sizeOf(b)}
	if err := s.room.take(ctx, q.size); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.closed || s.ctx.Err() != nil {
		s.mu.Unlock()
		s.room.give(q.size)
		return nil
	}
	l := s.lane(b.GetPartition())
	if !l.started {
		l.started = true
		s.ended.Go(func() { l.run(s.ctx) })
	}
	s.mu.Unlock()
	l.push(q)
	return nil
}

// Forget drops what came from a source, or with nil from all, and no handler has begun with.
func (s *Set) Forget(source Source) {
	for _, l := range s.list() {
		l.forget(source)
	}
}

func (s *Set) list() map[uint32]*Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.lanes)
}

// Retire ends the handlers' context, with ErrRetired, and waits for them.
func (s *Set) Retire() {
	s.cancel(ErrRetired)
	s.Close()
}

// Close waits for the handlers, whose context has ended. It may be called again.
func (s *Set) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.ended.Wait()
	s.cancel(nil)
	s.Forget(nil)
}

// SetOrigin says where all partitions of a session began, unless that is known: one of which nothing comes goes on there.
func (s *Set) SetOrigin(from Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.origin == nil {
		s.mu.origin = &from
	}
}

// List returns all partitions.
func (s *Set) List() []uint32 {
	all := make([]uint32, s.count)
	for p := range all {
		all[p] = uint32(p)
	}
	return all
}

// Known reports whether it is known where all partitions stand.
func (s *Set) Known() bool { _, known := s.Positions(); return known }

// Positions returns where the partitions stand; false while that is not known of all of them.
func (s *Set) Positions() (Positions, bool) {
	p := Positions{Cluster: s.cluster, PartitionCount: s.count, Partitions: make(map[uint32]Position, s.count)}
	lanes := s.list()
	for partition := range s.count {
		at, known, _ := s.stand(lanes[partition])
		if !known {
			return Positions{}, false
		}
		p.Partitions[partition] = at
	}
	return p, true
}

// Has reports whether a partition has passed a change.
func (s *Set) Has(partition uint32, change Position) bool {
	s.mu.Lock()
	l := s.mu.lanes[partition]
	s.mu.Unlock()
	if l == nil {
		return false
	}
	h := l.stand()
	return h.Known && h.At.Saw(change)
}
