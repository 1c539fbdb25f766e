package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrPinned says that a partition is pinned already.
var ErrPinned = errors.New("the partition is pinned already")

// A Pin is an operator's wish that a partition be a node's. The plan is sticky: a pin has done its work when the partition is there.
type Pin struct {
	To string    `json:"to"`
	By string    `json:"by"`
	At time.Time `json:"at"` // by the clock of who wishes; with By it tells one pin from another
}

// Same reports whether two pins are one.
func (p Pin) Same(q Pin) bool { return p.To == q.To && p.By == q.By && p.At.Equal(q.At) }

// A Drain is an operator's wish that a node have nothing.
type Drain struct {
	By string    `json:"by"`
	At time.Time `json:"at"` // by the clock of who wishes; informative
}

// Directives are what operators want of the leader. It does what it can: a pin to a node that takes nothing waits, and where everybody is to be
// drained nobody is.
type Directives struct {
	Pinned  map[change.Partition]Pin
	Drained map[string]Drain // by node
}

// A DirectiveStore keeps what operators want. All methods may block on the network until the context ends.
type DirectiveStore interface {
	// Pin wishes, for ttl unless it is taken back before, that a partition be a node's. ErrPinned says that another pin of it stands; that
	// the same one stands is nil.
	Pin(ctx context.Context, p change.Partition, wish Pin, ttl time.Duration) error
	// Unpin takes a pin back. That it does not stand is nil; another one stays.
	Unpin(ctx context.Context, p change.Partition, wish Pin) error
	// Drain wishes that a node have nothing, until Undrain, whether or not it is there. Of several such wishes the first stands.
	Drain(ctx context.Context, node string, wish Drain) error
	// Undrain takes that back. It is idempotent.
	Undrain(ctx context.Context, node string) error
}
