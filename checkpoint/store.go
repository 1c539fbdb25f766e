package checkpoint

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
)

// Errors of a store; adapters wrap them.
var (
	// ErrFenced says that a higher epoch owns the partition: the term that wrote is over.
	ErrFenced = errors.New("fenced: a newer epoch owns the partition")
	// ErrNoMark says that a partition has no mark.
	ErrNoMark = errors.New("no mark")
	// ErrNoOrigin says that nobody has started yet.
	ErrNoOrigin = errors.New("no origin")
	// ErrOriginMoved says that the origin is not the one that was expected to stand.
	ErrOriginMoved = errors.New("the origin has changed")
	// ErrForward says that a rewind would move a mark forward, and so lose what is between.
	ErrForward = errors.New("a rewind moves a mark back only")
)

// A Store keeps the marks of one cluster. All methods may block on the network until the context ends, may be called
// from several goroutines, and keep nothing of what they are given.
type Store interface {
	// Save writes marks of different partitions, trimmed, each on its own: one result for each, in order. Nil says that the
	// mark's epoch owned the partition and that the stored position is the mark's or a later one, also when an earlier Save
	// whose answer got lost has already done it; a mark that stands before the stored one is left out silently, because
	// marks never move back. ErrFenced says that the epoch does not own the partition any longer. A fault of a stored mark
	// (MarkNewer, MarkPartitions, MarkCorrupt) says that it was left as it is. Any other error says that it is unknown
	// whether the mark was written. Saving again is always safe.
	Save(ctx context.Context, marks []Mark) []error

	// Load returns the mark of a partition, or ErrNoMark.
	Load(ctx context.Context, p change.Partition) (Mark, error)

	// List returns all marks in the order of their partitions. With an error that says which cannot be read, it returns the
	// others.
	List(ctx context.Context) ([]Mark, error)

	// Delete removes the mark of a partition and its history; that there is none is no error. It is an operator's tool: it is not
	// fenced.
	Delete(ctx context.Context, p change.Partition) error
}

// A Claimer binds the marks of partitions to the terms that begin: from then on the store refuses every lower epoch.
type Claimer interface {
	// Claim takes the marks of the terms' partitions for the terms' epochs and then reads them: one mark for each term, in
	// order, with a zero Position where there is none. ErrFenced says that a higher epoch has one of them already. A store
	// whose fence is the ownership key itself (etcd) has nothing to write here.
	Claim(ctx context.Context, terms []change.Term) ([]Mark, error)
}

// An OriginKeeper keeps the origin.
type OriginKeeper interface {
	// Origin returns the origin, or ErrNoOrigin.
	Origin(ctx context.Context) (Origin, error)
	// Found writes the origin if there is none, in one transaction, and returns the one that stands, whoever wrote it.
	Found(ctx context.Context, o Origin) (Origin, error)
	// Complete writes what the origin that stands does not say of its backend, in one transaction, and returns the origin that stands then,
	// whoever completed it. It ends no epoch and no membership: nodes of earlier versions, which know of no backend, notice nothing.
	Complete(ctx context.Context, b Backend) (Origin, error)
}
