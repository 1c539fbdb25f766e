package checkpoint

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
)

// Errors of a store; adapters wrap them.
var (
	// ErrFenced says that a newer epoch owns the partition, or a newer process has the subscriber's name.
	ErrFenced = errors.New("fenced: a newer owner saves this checkpoint")
	// ErrRewound says that an operator has moved the checkpoint: what was to be saved is of the generation before.
	ErrRewound = errors.New("an operator has moved this checkpoint")
	// ErrNone says that a subscriber has no checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrNoOrigin says that nobody has started yet.
	ErrNoOrigin = errors.New("no origin")
	// ErrOriginMoved says that the origin is not the one that was expected.
	ErrOriginMoved = errors.New("the origin has changed")
	// ErrForward says that a rewind would move a checkpoint forward, and so lose what is between.
	ErrForward = errors.New("a rewind moves a checkpoint back only")
)

// A Store keeps the checkpoints of one cluster. All methods may block on the network until the context ends, may be called from several
// goroutines, and keep nothing of what they are given.
type Store interface {
	// Save saves checkpoints with different keys, trimmed, each on its own: one result for each, in order. Nil says that what stands is what
	// Merge says, also when an earlier Save whose answer got lost has already done it. ErrFenced and ErrRewound say that it was left as it
	// is. A fault of a stored checkpoint (CheckpointNewer, CheckpointPartitions, CheckpointCorrupt) says so too. Any other error says
	// that it is unknown whether it was written. Saving again is always safe.
	Save(ctx context.Context, checkpoints []Checkpoint) []error

	// Load returns the checkpoints of a subscriber in the order of their partitions, none where nothing is known of it. With an error that says
	// which cannot be read, it returns the others.
	Load(ctx context.Context, subscriber string) ([]Checkpoint, error)

	// List returns all checkpoints in the order of Sort. With an error that says which cannot be read, it returns the others.
	List(ctx context.Context) ([]Checkpoint, error)

	// Delete removes the checkpoints of a subscriber and their history, readable or not; that there are none is no error. It is an
	// operator's tool: it is not fenced. Whoever has the session of an exclusive subscriber gets ErrFenced when it saves again; the checkpoints
	// of a shared one begin anew where its owners are.
	Delete(ctx context.Context, subscriber string) error

	// History returns the last checkpoints of a key, newest first: all that were not routine, one a minute of the others, and at most
	// HistoryLength. With an error that says which entries cannot be read, it returns the others.
	History(ctx context.Context, k Key) ([]Checkpoint, error)
}

// A Claimer binds checkpoints to those who may save them from then on.
type Claimer interface {
	// ClaimTerms takes the checkpoints of a shared subscriber in the terms' partitions for the terms' epochs and then reads them: one for
	// each term, in order, with a zero Position where there is none. ErrFenced says that a higher epoch has one of them already. A store
	// whose fence is the ownership key itself (etcd) has nothing to write here.
	ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]Checkpoint, error)
	// ClaimName takes the name of an exclusive subscriber for a process as Claim.Claimed says, and returns its checkpoint with that claim;
	// where there is none it writes first, with that claim. A *TakenError says that a newer process has the name. Where there are more than
	// MaxSubscribers, the exclusive ones that were saved or claimed longest ago, by the store's own reckoning, make room.
	ClaimName(ctx context.Context, c Claim, first Checkpoint) (Checkpoint, error)
}

// A Rewinder moves checkpoints back, which is an operator's deed.
type Rewinder interface {
	// Rewind writes, in one transaction, what Checkpoint.Rewound says over the checkpoint of a key, and adds it to the history: whatever is saved
	// with the generation before from then on is ErrRewound. A Save that runs at the same time comes before all of it or after all of it.
	// Where there is no checkpoint it is ErrNone.
	Rewind(ctx context.Context, k Key, to change.Position, by, why string) (Checkpoint, error)
	// Put writes a checkpoint, whatever stands, as Checkpoint.Imported says, and adds it to the history: an import. Without an origin it is
	// ErrNoOrigin; a shared checkpoint of another number of partitions than the origin's is refused.
	Put(ctx context.Context, c Checkpoint) error
}

// An OriginKeeper keeps the origin.
type OriginKeeper interface {
	// Origin returns the origin, or ErrNoOrigin.
	Origin(ctx context.Context) (Origin, error)
	// Create writes the origin if there is none, in one transaction, and returns the one that stands, whoever wrote it.
	Create(ctx context.Context, o Origin) (Origin, error)
	// Complete writes what the origin that stands does not say of its backend, in one transaction, and returns the origin that stands then,
	// whoever completed it. It ends no epoch and no membership.
	Complete(ctx context.Context, b Backend) (Origin, error)
}

// An Adopter puts another origin in the place of the one that stands, after the store or the source was restored from a backup.
type Adopter interface {
	// Adopt writes next, whose incarnation must be higher and whose number of partitions the same, if last still stands: else it is
	// ErrOriginMoved, and nothing is written. Every epoch of an earlier incarnation is fenced when it returns nil. What next does not say of its
	// backend stays as it was.
	Adopt(ctx context.Context, last, next Origin) error
}
