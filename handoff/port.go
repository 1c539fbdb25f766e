package handoff

import (
	"context"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/handoff/ledger"
)

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
	Tell(p change.Partition, w Word, to ledger.Party)
}

// Marks is where marks are kept.
type Marks interface {
	checkpoint.Claimer
	Load(ctx context.Context, p change.Partition) (checkpoint.Mark, error)
}
