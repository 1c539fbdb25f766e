package wiring

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/streamer"
)

// returnEvery is how soon a term that the node has ended is returned to the cluster.
const returnEvery = 500 * time.Millisecond

// terms are those that the node serves.
type terms struct {
	mu struct {
		sync.Mutex
		served map[change.Partition]change.Term
	}
}

// resume hands terms to the node: all of them at first, later those of partitions that were claimed
// again.
func (m *Membership) resume(ctx context.Context, terms []change.Term) error {
	if err := m.cfg.Node.Serve(ctx, terms); err != nil {
		return err
	}
	m.terms.add(terms)
	return nil
}

func (t *terms) add(terms []change.Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.served == nil {
		t.mu.served = make(map[change.Partition]change.Term)
	}
	for _, term := range terms {
		t.mu.served[term.Partition] = term
	}
}

// over returns the terms that have ended. A claim's clock is asked once for all of its terms that
// last, because it is a system call, and there may be thousands. The contexts of another claim's
// terms have ended.
func (t *terms) over() (over []change.Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lasts := false
	for _, term := range t.mu.served {
		switch {
		case lasts && term.Context.Err() == nil:
		case term.Err() != nil:
			over = append(over, term)
		default:
			lasts = true
		}
	}
	return over
}

// ended removes and returns the terms that the node serves no longer. The node is asked while no
// term is added: one that begins meanwhile has not ended.
func (t *terms) ended(node *streamer.Node) (ended []change.Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, term := range t.mu.served {
		if node.Epoch(p) != term.Epoch {
			delete(t.mu.served, p)
			ended = append(ended, term)
		}
	}
	return ended
}

// leave removes terms that the node hands over: the donor returns them, and until then their keys
// must be there to be transferred.
func (t *terms) leave(terms []change.Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, term := range terms {
		if t.mu.served[term.Partition].Epoch == term.Epoch {
			delete(t.mu.served, term.Partition)
		}
	}
}

// An owner takes back terms that are no longer in use.
type owner interface{ Return(change.Term) }

var _ owner = (*member.Member)(nil)

// returning reports to the member, while run runs, the terms that the node has ended.
func (m *Membership) returning(ctx context.Context, run func() error) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { m.terms.returnEnded(ctx, m.cfg.Node, m.member) })
	return run()
}

// returnEnded reports to the owner, until the context ends, the terms that the node has ended:
// because the store refused a checkpoint, or the term's context has ended.
func (t *terms) returnEnded(ctx context.Context, node *streamer.Node, o owner) {
	tick := time.NewTicker(returnEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		node.Ended(t.over()) // they are no longer in use
		for _, term := range t.ended(node) {
			o.Return(term)
		}
	}
}
