package streamer

import (
	"context"
	"errors"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// errReleased ends a consumer whose partition goes to another node.
var errReleased = errors.New("released")

// Release comes to an end with terms whose partitions go to other nodes: nothing more of them is read, their marks are saved where their
// subscribers have acknowledged, and then they are gone from Status. What was sent and not acknowledged is delivered again by whoever
// follows. It returns at once; terms that the node does not serve are ignored.
func (n *Node) Release(terms []change.Term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.stopping {
		return // everything comes to its end
	}
	var leaving []*Consumer
	for _, term := range terms {
		if c := n.mu.consumers[term.Partition]; c != nil && c.term.Epoch == term.Epoch {
			leaving = append(leaving, c)
		}
	}
	if len(leaving) > 0 {
		n.running.Go(func() { n.release(context.WithoutCancel(n.lifetime), leaving) }) // a stop of the node saves their marks too
	}
}

// release waits for the consumers to end, and saves their last marks together.
func (n *Node) release(ctx context.Context, leaving []*Consumer) {
	var ends sync.WaitGroup
	for _, c := range leaving {
		c.end(errReleased)
		ends.Go(func() { <-c.ended })
	}
	ends.Wait()
	save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
	defer cancel()
	keepers := make([]*checkpoint.Keeper, len(leaving))
	for i, c := range leaving {
		keepers[i] = c.keeper
	}
	if err := n.manager.Save(save, checkpoint.ReasonHandoff, keepers...); err != nil {
		n.logger.Warn("last marks were not saved; more is delivered again by the next owner", "partitions", len(leaving), "error", err)
	}
	for _, c := range leaving {
		n.remove(c)
	}
}

// remove forgets a consumer that has ended.
func (n *Node) remove(c *Consumer) {
	n.mu.Lock()
	if n.mu.consumers[c.term.Partition] == c {
		delete(n.mu.consumers, c.term.Partition)
	}
	n.mu.Unlock()
	c.keeper.End()
	c.cursor().Close()
}

// consumer returns the consumer of a partition, nil where there is none.
func (n *Node) consumer(p change.Partition) *Consumer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.consumers[p]
}

// serving returns the consumer of a partition at an epoch, nil where there is none.
func (n *Node) serving(p change.Partition, e change.Epoch) *Consumer {
	if c := n.consumer(p); c != nil && c.term.Epoch == e {
		return c
	}
	return nil
}

// Term returns the term under which the node serves a partition.
func (n *Node) Term(p change.Partition) (change.Term, bool) {
	if c := n.consumer(p); c != nil {
		return c.term, true
	}
	return change.Term{}, false
}

// Seal ends the saving of a term's marks until Unseal, and returns the one to be handed over. A term that is over is change.ErrTermLost.
func (n *Node) Seal(p change.Partition, e change.Epoch) (checkpoint.Mark, error) {
	c := n.serving(p, e)
	if c == nil {
		return checkpoint.Mark{}, change.ErrTermLost
	}
	return c.keeper.Seal(), nil
}

// Unseal undoes Seal.
func (n *Node) Unseal(p change.Partition, e change.Epoch) {
	if c := n.serving(p, e); c != nil {
		c.keeper.Unseal()
	}
}

// Depart comes to an end with a term whose mark has been handed over: nothing is saved. It returns at once.
func (n *Node) Depart(p change.Partition, e change.Epoch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.mu.consumers[p]
	if c == nil || c.term.Epoch != e || n.mu.stopping {
		return // or everything comes to its end
	}
	c.end(errReleased)
	n.running.Go(func() {
		<-c.ended
		n.remove(c)
	})
}
