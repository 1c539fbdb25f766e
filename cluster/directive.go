package cluster

import (
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrPinned says that a partition already has another pin.
var ErrPinned = errors.New("the partition is pinned already")

// A Pin is an operator's directive to assign a partition to a node. Plans are sticky: a pin is no
// longer needed once the partition is there.
type Pin struct {
	To string    `json:"to"`
	By string    `json:"by"`
	At time.Time `json:"at"` // by the operator's clock; with By it tells one pin from another
}

// Same reports whether p and q are the same pin.
func (p Pin) Same(q Pin) bool { return p.To == q.To && p.By == q.By && p.At.Equal(q.At) }

// A Drain is an operator's directive to move all partitions away from a node.
type Drain struct {
	By string    `json:"by"`
	At time.Time `json:"at"` // by the operator's clock; informative
}

// Directives are the operators' requests to the leader. The leader follows them as far as possible:
// a pin to a node that takes no partitions waits, and if all nodes should be drained, none is.
type Directives struct {
	Pinned  map[change.Partition]Pin
	Drained map[string]Drain // by node
}
