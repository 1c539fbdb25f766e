package streamer

import (
	"context"
	"errors"
	"sync"

	"mongostream/change"
	"mongostream/checkpoint"
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
		n.running.Go(func() { n.release(leaving) })
	}
}

// release waits for the consumers to end, and saves their last marks together.
func (n *Node) release(leaving []*Consumer) {
	var ends sync.WaitGroup
	for _, c := range leaving {
		c.end(errReleased)
		ends.Go(func() { <-c.ended })
	}
	ends.Wait()
	save, cancel := context.WithTimeout(context.Background(), n.cfg.CheckpointTimeout) // a stop of the node saves them too
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
