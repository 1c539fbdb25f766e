package checkpoint

import "github.com/mongostream/streamer/checkpoint/key"

// ErrKeysMoved says that the keys are not those that a key was to follow.
var ErrKeysMoved = key.ErrMoved

// A Key seals what leaves the cluster and comes back. Package key says how keys follow each other.
type Key = key.Key

// Keys are those of one cluster, in the order of their serials.
type Keys = key.Set

// A KeyKeeper keeps the keys of one cluster, beside the marks and apart from their fence.
type KeyKeeper = key.Keeper

var _ KeyKeeper = (*Memory)(nil)
