package ledger

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

var (
	// ErrMoving says that a partition is being handed over already.
	ErrMoving = errors.New("the partition is moving already")
	// ErrStale says that the ledger does not stand as the caller has read it: nothing was written, and nothing of what was asked will be.
	ErrStale = errors.New("the ledger stands otherwise")
)

// A Keeper keeps the ledger. All methods may block on the network until the context ends.
type Keeper interface {
	// Prepare begins a handoff. ErrMoving says that there is a record of the partition, ErrStale that From does not own it at the epoch.
	// Where an answer gets lost, preparing the same again gives the record that stands.
	Prepare(ctx context.Context, r Record) (Record, error)
	// Look reads what there is of a partition.
	Look(ctx context.Context, p change.Partition) (Sight, error)
	// List reads all records.
	List(ctx context.Context) ([]Record, error)
	// Hints returns a channel that holds one signal when something may have changed since it was last received from: after every change
	// that is seen, and whenever changes may have gone unseen. It is closed after the context has ended.
	Hints(ctx context.Context) <-chan struct{}
}

// A Switcher is the ledger for donors.
type Switcher interface {
	// Switch makes the record's To the owner, under the lease that its answer stands under, and moves the mark, if From still owns the
	// partition at the mark's epoch and record and answer stand as given. ErrStale says that they do not. The mark may stand before the
	// one that is kept, which then stays. Where marks are kept elsewhere, it is saved there first, and an error of that is returned.
	// After any other error nobody knows whether it was done, or will be until the record has been closed. Switching again is safe:
	// one of all attempts succeeds. It returns the record as it has written it.
	Switch(ctx context.Context, r Record, a Answer, m checkpoint.Mark) (Record, error)
	// Close takes the record away. ErrStale says that it is not the one that stands; that none stands is nil. After nil no switch of it
	// can succeed any more.
	Close(ctx context.Context, r Record) error
}

// An Answerer is the ledger for recipients.
type Answerer interface {
	// Answer writes the answer to the record, in the place of an earlier one, under the lease of this node's membership. ErrStale says that
	// the record is not the one that stands, or that the membership is gone.
	Answer(ctx context.Context, r Record, refusal string) error
}
