package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
)

// drink is the subscriber of a process's own deliveries: together the sinks of all processes get everything, which only marks see to.
func (p *process) drink(ctx context.Context) {
	r := rand.New(rand.NewPCG(p.world.seed, p.tag))
	next := map[tenure]int{} // which event comes next under a term
	for {
		batches, err := p.sink.Receive(ctx)
		if err != nil {
			return
		}
		if r.IntN(3) == 0 && !p.world.healed.Load() {
			nap(time.Duration(r.IntN(300)) * time.Millisecond) // on its way to the transport
		}
		p.pass()
		for _, b := range batches {
			if b.Over() || p.dead() {
				p.sink.Drop(b)
				continue
			}
			p.swallow(b, next)
			if r.IntN(4) == 0 && !p.world.healed.Load() {
				nap(time.Duration(r.IntN(200)) * time.Millisecond)
			}
			p.pass()
			p.acknowledge(b, next)
		}
	}
}

// swallow looks at a batch that is handed out.
func (p *process) swallow(b *delivery.Batch, next map[tenure]int) {
	w := p.world
	key := tenure{b.Partition, b.Epoch}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.mu.terms[key]
	if t == nil && p.dead() {
		return // killed at this very moment
	}
	if t == nil || t.term.Err() != nil && !t.said.isNow() {
		w.complain("partition %d: %s hands out %d events under epoch %s, which is over", b.Partition, p.id, len(b.Events), b.Epoch)
	}
	if b.Notice != nil {
		w.complain("partition %d: %s hands out a notice: %s", b.Partition, p.id, b.Notice.Kind)
		return
	}
	for i := range b.Events {
		at := w.upTo(b.Partition, b.Events[i].Position()) - 1
		want, known := next[key]
		switch {
		case known && at != want:
			w.complain("partition %d: event %d comes from %s under epoch %s, %d was to come", b.Partition, at, p.id, b.Epoch, want)
		case !known && at > w.mu.sunk[b.Partition]:
			w.complain("partition %d: %s begins epoch %s with event %d, %d have been acknowledged", b.Partition, p.id, b.Epoch, at, w.mu.sunk[b.Partition])
		case at < w.mu.sunk[b.Partition]:
			w.mu.figures.repeated++
		}
		next[key] = at + 1
	}
}

// acknowledge acknowledges a batch, also when the term has ended meanwhile: the subscriber has it.
func (p *process) acknowledge(b *delivery.Batch, next map[tenure]int) {
	if p.dead() {
		return
	}
	key := tenure{b.Partition, b.Epoch}
	n := next[key]
	p.world.sinkHas(b.Partition, n-len(b.Events), n)
	p.mu.Lock()
	p.mu.sunk[key] = max(p.mu.sunk[key], n)
	p.mu.Unlock()
	p.sink.Ack(b)
}

// sinkHas notes that a sink has events of a partition.
func (w *world) sinkHas(p change.Partition, from, to int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := from; i < to; i++ {
		w.mu.acked[p][i] = true
	}
	for w.mu.acked[p][w.mu.sunk[p]] {
		delete(w.mu.acked[p], w.mu.sunk[p])
		w.mu.sunk[p]++
	}
}
