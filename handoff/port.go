package handoff

import (
	"context"
	"errors"
	"time"

	"mongostream/change"
	"mongostream/checkpoint"
)

var (
	// ErrMoving says that a partition is being handed over already.
	ErrMoving = errors.New("the partition is moving already")
	// ErrStale says that the ledger does not stand as the caller has read it: nothing was written, and nothing of what was asked will be.
	ErrStale = errors.New("the ledger stands otherwise")
)

// A Ledger is where handoffs are written down. All methods may block on the network until the context ends.
type Ledger interface {
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

// A Donor is the node whose partition goes. No method blocks; all are of the term that owns the partition at the epoch, and do
// nothing for another.
type Donor interface {
	// Term returns the term under which the partition is served.
	Term(p change.Partition) (change.Term, bool)
	// Seal ends the saving of the term's marks until Unseal, and returns the mark to be handed over: everything before it has been
	// acknowledged. Sealing again returns a later one.
	Seal(p change.Partition, e change.Epoch) (checkpoint.Mark, error)
	// Unseal undoes Seal: the handoff came to nothing.
	Unseal(p change.Partition, e change.Epoch)
	// DeliverOn goes on delivering for the window, whatever becomes of the term, and then stops; marks are saved no more. Nothing is
	// delivered any longer than this node's lease can be trusted. A window of 0 stops at once, also what has begun with a longer one.
	DeliverOn(p change.Partition, e change.Epoch, window time.Duration)
}

// A Recipient is the node that gets a partition.
type Recipient interface {
	// Warm places a silent cursor for what follows the mark, at the node's tail or in a catch-up, and returns when it is as far as it needs
	// to be for serving at once. What it has placed stays until Serve or Drop. A mark without a position is that of the origin.
	Warm(ctx context.Context, p change.Partition, m checkpoint.Mark) error
	// Adopt returns the term of a partition that was made this node's at the epoch. Adopting again returns the same one. An error says
	// that the membership is gone, or the partition not this node's at the epoch.
	Adopt(p change.Partition, e change.Epoch) (change.Term, error)
	// Serve serves the partition behind the mark, in hold, with what Warm has placed.
	Serve(ctx context.Context, t change.Term, m checkpoint.Mark) error
	// Drop gives up what Warm has placed, and where the epoch is not zero, the partition that was adopted at it.
	Drop(p change.Partition, e change.Epoch)
}

// A Word is what sessions are told.
type Word string

// The words.
const (
	SayMoving Word = "moving" // attach to the other node too, with your positions
	SayMoved  Word = "moved"  // the other node serves it
	SayStays  Word = "stays"  // the other node will not serve it
)

// Sessions are who the donor delivers to. Tell must not block.
type Sessions interface {
	Tell(p change.Partition, w Word, to Party)
}

// Marks is where marks are kept.
type Marks interface {
	checkpoint.Claimer
	Load(ctx context.Context, p change.Partition) (checkpoint.Mark, error)
}
