package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// Errors of a store; adapters wrap them.
var (
	// ErrFenced says that a newer epoch owns the partition, or a newer process has the subscriber's
	// name.
	ErrFenced = errors.New("fenced: a newer owner has this checkpoint")
	// ErrRewound says that an operator has rewound the checkpoint: the saved one belongs to an
	// earlier generation.
	ErrRewound = errors.New("operator rewound this checkpoint")
	// ErrForeign says that a subscriber's checkpoint was made by another identity.
	ErrForeign = errors.New("another identity has this checkpoint")
	// ErrNames says that an identity has too many subscribers.
	ErrNames = errors.New("the identity has too many subscribers with checkpoints")
	// ErrUnsavable says that a checkpoint cannot be encoded, is too large, or is none of this
	// store.
	ErrUnsavable = errors.New("this checkpoint cannot be saved")
	// ErrNone says that a subscriber has no checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrNoOrigin says that there is no origin yet.
	ErrNoOrigin = errors.New("no origin")
	// ErrOriginMoved says that the origin is not the expected one.
	ErrOriginMoved = errors.New("origin has changed")
	// ErrForward says that a rewind would move a checkpoint forward and lose changes.
	ErrForward = errors.New("rewind cannot move a checkpoint forward")
)

// A Store stores the checkpoints of one cluster. Its methods are safe for concurrent use, may block
// on the network until the context ends, and do not retain their arguments.
type Store interface {
	// Save saves checkpoints with different keys, trimmed and independently: it returns one result
	// for each, in order. nil says that the stored checkpoint is the result of Merge, perhaps by an
	// earlier Save whose answer was lost. ErrFenced, ErrRewound, or a fault of the stored
	// checkpoint (CheckpointNewer, CheckpointPartitions, CheckpointCorrupt) says that it is
	// unchanged. ErrUnsavable says the same. After any other error the outcome is unknown.
	// Repeating a Save is always safe.
	Save(ctx context.Context, checkpoints []Checkpoint) []error

	// Load returns the checkpoints of a subscriber ordered by partition, none if it is unknown. If
	// some cannot be read, it returns the others and an error.
	Load(ctx context.Context, subscriber string) ([]Checkpoint, error)

	// List returns all checkpoints in the order of Sort. If some cannot be read, it returns the
	// others and an error.
	List(ctx context.Context) ([]Checkpoint, error)

	// Delete removes the checkpoints of a subscriber and their history, readable or not; it is no
	// error if there are none. It is an operator's tool and not fenced. The next Save of an
	// exclusive subscriber returns ErrFenced; the owners of a shared subscriber create new
	// checkpoints at their positions.
	Delete(ctx context.Context, subscriber string) error

	// History returns at most HistoryLength checkpoints of a key, newest first: all significant
	// ones and one routine checkpoint per minute. If some cannot be read, it returns the others and
	// an error.
	History(ctx context.Context, k Key) ([]Checkpoint, error)
}

// A Claimer binds checkpoints to their current owner.
type Claimer interface {
	// ClaimTerms binds the checkpoints of a shared subscriber to the terms' epochs and returns one
	// for each term, in order, with a zero Position if there is none. It returns ErrFenced if a
	// higher epoch has claimed one of them. If some are damaged, it returns the others and an
	// UnreadError; those of a newer version, or of another number of partitions, fail the claim. A
	// store that fences by the ownership key (etcd) writes nothing.
	ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]Checkpoint, error)
	// ClaimName claims the name of an exclusive subscriber as Claim.Claimed defines, and returns
	// its checkpoint with that claim; it writes first with the claim if there is none. It returns a
	// *TakenError if a newer process has the name, and an error that wraps ErrForeign if another
	// identity has it. A new name of an identity beyond MaxNames is refused with an error that
	// wraps ErrNames; processes that claim at once may exceed it a little. Beyond MaxSubscribers,
	// the exclusive subscribers without an identity that were saved or claimed longest ago are
	// removed. No claim removes the checkpoint of an identity.
	ClaimName(ctx context.Context, c Claim, first Checkpoint) (Checkpoint, error)
}

// IsDamage reports whether an error concerns a single checkpoint that cannot be read. A checkpoint
// of a newer version, or of another number of partitions, is not damaged: another build or
// configuration can read it, and a node that ignored it would be the wrong one.
func IsDamage(err error) bool { return fault.Of(err) == fault.CheckpointCorrupt }

// An UnreadError says which checkpoints of a claim cannot be read: those of the other partitions
// are claimed.
type UnreadError struct {
	Partitions map[change.Partition]error
}

// Error names one of them.
func (e *UnreadError) Error() string {
	first := slices.Min(slices.Collect(maps.Keys(e.Partitions)))
	return fmt.Sprintf("checkpoints of %d partitions cannot be read: partition %d: %v", len(e.Partitions), first, e.Partitions[first])
}

// Unwrap returns why they cannot be read.
func (e *UnreadError) Unwrap() []error { return slices.Collect(maps.Values(e.Partitions)) }

// Unread adds the error of a partition's unreadable checkpoint to an error that may be nil.
func (e *UnreadError) Unread(p change.Partition, err error) *UnreadError {
	if e == nil {
		e = &UnreadError{Partitions: make(map[change.Partition]error)}
	}
	e.Partitions[p] = err
	return e
}

// A Rewinder moves checkpoints for an operator.
type Rewinder interface {
	// Rewind replaces the checkpoint of a key by Checkpoint.Rewound in one transaction and adds it
	// to the history. Later saves with the previous generation return ErrRewound. It is atomic with
	// respect to concurrent saves. It returns ErrNone if there is no checkpoint. One that is
	// corrupt is replaced by Checkpoint.Repaired of the newest entry of its history, if there is
	// one.
	Rewind(ctx context.Context, k Key, to change.Position, by, why string) (Checkpoint, error)
	// Put replaces any stored checkpoint by Checkpoint.Imported and adds it to the history. It
	// returns ErrNoOrigin without an origin, and an error for a shared checkpoint with another
	// number of partitions.
	Put(ctx context.Context, c Checkpoint) error
}

// An OriginKeeper stores the origin.
type OriginKeeper interface {
	// Origin returns the origin, or ErrNoOrigin.
	Origin(ctx context.Context) (Origin, error)
	// Create writes the origin if there is none, in one transaction, and returns the stored one.
	Create(ctx context.Context, o Origin) (Origin, error)
	// Complete fills in unknown fields of the stored origin's backend, in one transaction, and
	// returns the stored origin. It ends no epoch and no membership.
	Complete(ctx context.Context, b Backend) (Origin, error)
}

// An Adopter replaces the origin after the store or the source was restored from a backup.
type Adopter interface {
	// Adopt replaces last by next, which must have a higher incarnation and the same number of
	// partitions. It returns ErrOriginMoved and writes nothing if the stored origin is not last.
	// Afterwards every epoch of an earlier incarnation is fenced. Unknown fields of next's backend
	// are kept.
	Adopt(ctx context.Context, last, next Origin) error
}
