package streamer

import (
	"context"
	"time"

	"github.com/mongostream/streamer/streamer/status"
)

// A PartitionStatus is how one partition of this node does.
type PartitionStatus = status.Partition

// Status returns how each partition of this node does, in the order of their numbers.
func (n *Node) Status() []PartitionStatus {
	log := n.reading()
	evidence := log.Evidence()
	consumers := n.consumers()
	all := make([]PartitionStatus, len(consumers))
	for i, c := range consumers {
		all[i] = log.Of(&c.condition, c.term.Partition, c.term.Epoch, c.LowWater(), evidence)
	}
	return all
}

// reading returns how the reading of the log does.
func (n *Node) reading() status.Log {
	l := status.Log{Now: time.Now(), Survey: n.survey, Tail: n.log.Stats(), Begun: n.begun}
	l.Reach, l.Known = n.survey.Latest(l.Now)
	return l
}

// Uptime returns for how long the node has been there.
func (n *Node) Uptime() time.Duration { return time.Since(n.begun) }

// MarksFailing reports whether the last round of marks could not be saved.
func (n *Node) MarksFailing() bool { return n.manager.Failing() }

// runPulse measures the consumers' events a second, and tells operators when reading is stuck and when it goes on, until the context ends.
func (n *Node) runPulse(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var watch status.Watch
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, c := range n.consumers() {
			c.condition.Beat()
		}
		if told := watch.Look(n.reading(), len(n.consumers())); told != nil {
			n.cfg.Board.Post(*told)
		}
	}
}
