package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrLost says that a claim is gone: it ran out, or another process took over.
var ErrLost = errors.New("claim lost")

// A HeldError says that a living process owns partitions, or has the node's name.
type HeldError struct {
	Node    string        // the other's node id
	Process string        // its process id
	TTL     time.Duration // when its claim expires unless renewed
}

// Error names the owner.
func (e *HeldError) Error() string {
	return fmt.Sprintf("held by node %q, process %s", e.Node, e.Process)
}

// An Identity names a process of a node.
type Identity struct {
	Node    string // the configured or derived node id, stable over restarts
	Process string // a random id of this process
}

// A Registry stores the ownership of all partitions of a single-node cluster. All methods may block
// on the network until the context ends.
type Registry interface {
	// Claim takes the ownership of partitions 0 to n-1 under a claim that expires after ttl unless
	// renewed, and returns their epochs in order. If another live process owns one, it returns a
	// *HeldError and claims nothing; with takeOver it ends that process's claim instead. ErrLost
	// says that the store is empty.
	Claim(ctx context.Context, m Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error)

	// Renew extends the claim and returns its new duration, counted from the call. It also returns
	// the partitions that an operator's rewind has removed from the claim and that have not been
	// reclaimed. ErrLost says that the claim has ended for good; after any other error the outcome
	// is unknown.
	Renew(ctx context.Context) (ttl time.Duration, taken []change.Partition, err error)

	// Reclaim adds partitions whose terms have ended to the claim again, and returns their epochs
	// in order, which are higher than all earlier ones. Partitions that are still in the claim get
	// new epochs too. A *HeldError says that another process owns one, ErrLost that the claim has
	// ended for good.
	Reclaim(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error)

	// Release ends the claim at once, so that a successor does not have to wait.
	Release(ctx context.Context) error
}
