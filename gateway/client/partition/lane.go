package partition

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Worker does what batches ask for. Its calls for one partition come one after the other, those for different partitions at the same time.
type Worker interface {
	// Deliver takes one change to its handlers. It blocks until they have dealt with it; after an error the lane is over.
	Deliver(ctx context.Context, partition uint32, e *streampb.Event) error
	// Lose tells of what became of a batch that has a loss, like Deliver.
	Lose(ctx context.Context, b *streampb.Batch) error
	// Passed hears where a partition stands when it has moved: behind a change, or, with nil, behind a batch.
	Passed(partition uint32, e *streampb.Event, at Position)
}

// A Source is the session that a batch has come through. Its methods never block.
type Source interface {
	// Ack hears that everything of a partition has been handled up to where a batch ended.
	Ack(partition uint32, to *streampb.Position)
	// Moved hears that a batch has taken its partition further.
	Moved()
	// Hole hears that something is missing before a batch. Nothing else of the session is handled in that partition.
	Hole()
}

// Counts count what all lanes have done.
type Counts struct {
	Batches    atomic.Uint64 // handled
	Duplicates atomic.Uint64 // changes dropped, because they had been handled
	Holes      atomic.Uint64 // batches before which something was missing
}

// A Lane is the path of one partition's batches, one after the other.
type Lane struct {
	set       *Set
	partition uint32
	woken     chan struct{} // holds one signal: something is queued
	started   bool          // guarded by the set's mutex

	mu struct {
		sync.Mutex
		have   Have
		queue  []queued
		broken Source // it has left something out: what else it sends is of no use
		cursor cursor // of the furthest batch that has been handled
	}
}

// A queued is a batch that waits.
type queued struct {
	source Source
	batch  *streampb.Batch
	size   int
}

// sizeOf is what a batch counts for while it waits.
func sizeOf(b *streampb.Batch) int {
	const overhead = 256
	n := overhead
	for _, e := range b.GetEvents() {
		n += overhead + len(e.GetChange())
	}
	return n
}

// push queues a batch. Its size has been taken from the room.
func (l *Lane) push(q queued) {
	l.mu.Lock()
	l.mu.queue = append(l.mu.queue, q)
	l.mu.Unlock()
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// forget drops what waits of a source, or with nil of all: its session is over, and another one sends it again.
func (l *Lane) forget(source Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.mu.queue[:0]
	for _, q := range l.mu.queue {
		if source != nil && q.source != source {
			rest = append(rest, q)
		} else {
			l.set.room.give(q.size)
		}
	}
	clear(l.mu.queue[len(rest):])
	l.mu.queue = rest
	if source == nil || l.mu.broken == source {
		l.mu.broken = nil
	}
}

// next waits for a batch; it is false when the context has ended.
func (l *Lane) next(ctx context.Context) (q queued, ok bool) {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.mu.queue) > 0 {
			q, l.mu.queue = l.mu.queue[0], l.mu.queue[1:]
			l.mu.Unlock()
			return q, true
		}
		l.mu.Unlock()
		select {
		case <-l.woken:
		case <-ctx.Done():
		}
	}
	return queued{}, false
}

// run handles batches until the context ends or the worker gives up.
func (l *Lane) run(ctx context.Context) {
	for {
		q, ok := l.next(ctx)
		if !ok {
			return
		}
		err := l.handle(ctx, q)
		l.set.room.give(q.size)
		if err != nil {
			return // the worker knows
		}
	}
}

// handle takes what is new in a batch to the worker, and moves the partition.
func (l *Lane) handle(ctx context.Context, q queued) error {
	b := q.batch
	at, ok := l.begin(q)
	if !ok {
		return nil
	}
	l.set.counts.Batches.Add(1)
	if b.GetLoss() != nil {
		if err := l.set.worker.Lose(ctx, b); err != nil {
			return err
		}
		if b.GetLoss().GetKind() == streampb.Loss_KIND_REWOUND {
			l.rewind(q.source, Of(b.GetTo()))
		} else {
			l.reach(q.source, nil, Of(b.GetTo()))
		}
		l.end(q)
		return nil
	}
	for i, e := range b.GetEvents() {
		position := Of(e.GetPosition())
		if at.Saw(position) {
			l.set.counts.Duplicates.Add(1)
			continue
		}
		if err := l.set.worker.Deliver(ctx, l.partition, e); err != nil {
			return err
		}
		// One change may come in several forms, one behind the other. It has been handled with the last of them.
		if more := b.GetEvents()[i+1:]; len(more) > 0 && Of(more[0].GetPosition()).Equal(position) {
			continue
		}
		l.reach(q.source, e, position)
	}
	l.reach(q.source, nil, Of(b.GetTo()))
	l.end(q)
	return nil
}

// end acknowledges a batch that has been handled, and keeps its cursor.
func (l *Lane) end(q queued) {
	l.mu.Lock()
	l.mu.cursor = l.mu.cursor.or(cursor{sealed: q.batch.GetCursor(), at: Of(q.batch.GetTo())}, l.mu.have.At)
	l.mu.Unlock()
	q.source.Ack(l.partition, q.batch.GetTo())
}

// begin returns where the partition stands for a batch, unless something is missing before it.
func (l *Lane) begin(q queued) (Position, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.broken == q.source {
		return Position{}, false
	}
	at, ok := l.mu.have.Begin(Of(q.batch.GetFrom()))
	if !ok {
		l.mu.broken = q.source
		l.set.counts.Holes.Add(1)
		q.source.Hole()
	}
	return at, ok
}

// reach moves the partition behind a change, or behind a batch.
func (l *Lane) reach(s Source, e *streampb.Event, to Position) {
	l.mu.Lock()
	before := l.mu.have
	l.mu.have.Reach(to)
	after := l.mu.have.At
	l.mu.Unlock()
	if !before.Known || !before.At.Equal(after) {
		s.Moved()
		l.set.worker.Passed(l.partition, e, after)
	}
}

func (l *Lane) rewind(s Source, to Position) {
	l.mu.Lock()
	l.mu.have.Rewind(to)
	l.mu.cursor = cursor{}
	l.mu.Unlock()
	s.Moved()
}

// stand returns how far the partition is.
func (l *Lane) stand() Have {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.have
}
