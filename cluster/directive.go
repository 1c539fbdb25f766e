package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrPinned says that a partition already has another pin.
var ErrPinned = errors.New("the partition is pinned already")

// A Pin is an operator's directive to assign a partition to a node. Plans are sticky: a pin is no longer needed once the partition is there.
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

// Directives are what operators want of the leader. It does what it can: a pin to a node that takes no partitions waits, and where all nodes
// are to be drained none is.
type Directives struct {
	Pinned  map[change.Partition]Pin
	Drained map[string]Drain // by node
}

// A DirectiveStore keeps the operators' directives. All methods may block on the network until the context ends.
type DirectiveStore interface {
	// Pin adds a pin, which expires after ttl unless Unpin removes it before. ErrPinned says that the partition has another pin. It is
	// idempotent.
	Pin(ctx context.Context, p change.Partition, pin Pin, ttl time.Duration) error
	// Unpin removes a pin, and no other one of the partition. It is idempotent.
	Unpin(ctx context.Context, p change.Partition, pin Pin) error
	// Drain adds a drain of a node, whether or not the node is there. Of several drains of a node the first counts.
	Drain(ctx context.Context, node string, drain Drain) error
	// Undrain removes the drain of a node. It is idempotent.
	Undrain(ctx context.Context, node string) error
}
