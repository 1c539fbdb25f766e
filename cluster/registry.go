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
	TTL     time.Duration // how long its claim lives unless it is renewed
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

// A Registry keeps who owns all partitions of a cluster of one. All methods may block on the
// network until the context ends.
type Registry interface {
	// Claim takes the ownership of partitions 0 to n-1 under a claim that lives for ttl unless
	// renewed, and returns their epochs in order. Where another living process owns one, it returns
	// a *HeldError and has claimed nothing; with takeOver it ends that process's claim instead.
	// ErrLost says that there is nothing to own: the store is empty.
	Claim(ctx context.Context, m Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error)

	// Renew prolongs the claim and returns for how long, counted from when it was called, and which
	// partitions have been taken out of it one by one since it was made (by an operator's rewind)
	// and not been reclaimed. ErrLost says that the claim is gone for good; any other error that it
	// is unknown.
	Renew(ctx context.Context) (ttl time.Duration, taken []change.Partition, err error)

	// Reclaim takes the partitions, whose terms have ended one by one, into the claim again, and
	// returns their epochs in order, which are higher than any before. Those that were not taken
	// out of it get new epochs too. A *HeldError says that another process owns one, ErrLost that
	// the claim is gone for good.
	Reclaim(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error)

	// Release ends the claim at once, so that a successor need not wait.
	Release(ctx context.Context) error
}
