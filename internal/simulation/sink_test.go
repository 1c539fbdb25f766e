package simulation

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
)

// A draught is what a process has handed out of one partition since that was attached.
type draught struct {
	next  int  // the event that comes next
	begun bool // something has come
}

// drink is the target of the shared subscriber at a process: together those of all processes get
// everything, which only checkpoints see to.
func (p *process) drink(ctx context.Context) {
	r := rand.New(rand.NewPCG(p.world.seed, p.tag))
	draughts := map[change.Partition]*draught{}
	for {
		batches, err := p.sink.Receive(ctx)
		if err != nil {
			return
		}
		if r.IntN(3) == 0 && !p.world.healed.Load() {
			nap(time.Duration(r.IntN(300)) * time.Millisecond) // on its way to the transport
		}
		for _, b := range batches {
			p.pass()
			if p.dead() {
				return
			}
			from, to := p.swallow(b, draughts)
			if r.IntN(4) == 0 && !p.world.healed.Load() {
				nap(time.Duration(r.IntN(200)) * time.Millisecond)
			}
			p.pass()
			if p.dead() {
				return
			}
			p.acknowledge(b, from, to)
		}
	}
}

// swallow hands a batch out, and looks at what is handed out. It returns from which event to which
// of each partition.
func (p *process) swallow(b *delivery.Batch, draughts map[change.Partition]*draught) (from, to map[tenure]int) {
	w := p.world
	from, to = map[tenure]int{}, map[tenure]int{}
	if b.Loss != nil {
		if b.Loss.Kind != delivery.Rewound || !w.wasRewound(b.Loss.Partitions) {
			w.wrong("%s hands out a loss: %+v", p.id, *b.Loss)
		}
		return from, to
	}
	for _, q := range b.Attached {
		draughts[q] = &draught{}
		p.locked(func() { maps.DeleteFunc(p.mu.sunk, func(key tenure, _ sunken) bool { return key.partition == q }) })
	}
	before := map[change.Partition]*tenancy{} // a term may end in this very moment, after it was asked
	w.mu.Lock()
	for q := range change.Partition(w.partitions) {
		before[q] = w.mayHandOut(p, q)
	}
	w.mu.Unlock()
	if !w.breaks.trust {
		p.sink.Prune(b)
	}
	owners := map[change.Partition]*tenancy{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range b.Events {
		e := &b.Events[i]
		q := e.Partition
		if _, looked := owners[q]; !looked {
			owners[q] = cmp.Or(w.mayHandOut(p, q), before[q])
			if owners[q] == nil && !p.dead() {
				w.complain("partition %d: %s hands it out without a term", q, p.id)
			}
			for key, t := range w.mu.terms {
				if key.partition == q && t.process != p && t.relied() && !w.isTaken(t) && (owners[q] == nil || !w.isTaken(owners[q])) {
					w.complain("partition %d: %s hands it out, and %s relies on epoch %s", q, p.id, t.process.id, key.epoch)
				}
			}
		}
		at, known := w.mu.sunk[q].index[e.Ref]
		d := draughts[q]
		switch {
		case !known:
			w.complain("partition %d: an event that nobody has written", q)
		case d == nil:
			w.complain("partition %d: %s hands out event %d before the partition was attached", q, p.id, at)
			d = &draught{}
			draughts[q] = d
		case d.begun && at != d.next:
			w.complain("partition %d: event %d comes from %s, %d was to come", q, at, p.id, d.next)
		case !d.begun && at > max(w.mu.drunk[q].n, p.offer(sink, q)):
			w.complain("partition %d: %s begins with event %d, %d have been acknowledged", q, p.id, at, w.mu.drunk[q].n)
		}
		if o := owners[q]; o != nil && !w.isTaken(o) {
			if last := &w.mu.poured[q]; at > *last {
				w.complain("partition %d: event %d comes from %s after %d: what is redelivered has a hole", q, at, p.id, *last-1)
			}
			w.mu.poured[q] = at + 1
		}
		if at < w.mu.drunk[q].n {
			w.mu.figures.repeated++
		}
		key := tenure{partition: q}
		if o := owners[q]; o != nil {
			key.epoch = o.term.Epoch
		}
		if _, there := from[key]; !there {
			from[key] = at
		}
		d.next, d.begun, to[key] = at+1, true, at+1
	}
	return from, to
}

// mayHandOut returns the term under which a process may hand a partition out now, nil where it has
// none that is trusted. Under the mutex.
func (w *world) mayHandOut(p *process, q change.Partition) *tenancy {
	for key, t := range w.mu.terms {
		if key.partition == q && t.process == p && t.term.Err() == nil {
			return t
		}
	}
	return nil
}

// acknowledge acknowledges a batch, also when the terms have ended meanwhile: the target has it.
func (p *process) acknowledge(b *delivery.Batch, from, to map[tenure]int) {
	w := p.world
	w.mu.Lock()
	for key := range to {
		w.mu.drunk[key.partition].add(from[key], to[key])
	}
	w.mu.Unlock()
	if err := p.sink.Ack(b.Seq); err != nil {
		w.wrong("%s: batch %d of the sink cannot be acknowledged: %v", p.id, b.Seq, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for key, n := range to {
		s := p.mu.sunk[key]
		if !s.at.Equal(now) {
			s.before = s.n
		}
		s.n, s.at = max(s.n, n), now
		p.mu.sunk[key] = s
	}
}
