package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Rewinder moves marks back, which is an operator's deed.
type Rewinder interface {
	// Rewind writes, in one transaction, the mark of a partition at the position, which must not stand behind the mark that is
	// there (else it is ErrForward), with the next generation, adds it to the history, and ends the term that owns the partition:
	// whatever that one saves from then on is ErrFenced. A Save that runs at the same time comes before all of it or after all of
	// it. by and why are who did it and what for. Where there is no mark the position must not stand behind the origin's start.
	Rewind(ctx context.Context, p change.Partition, to change.Position, by, why string) (Mark, error)
}

// An Adopter puts another origin in the place of the one that stands, after the store or the source was restored from a backup.
type Adopter interface {
	// Adopt writes next, whose incarnation must be higher and whose number of partitions the same, if last still stands: else it is
	// ErrOriginMoved, and nothing is written. Every epoch of an earlier incarnation is fenced when it returns nil. What next does not say of
	// its backend stays.
	Adopt(ctx context.Context, last, next Origin) error
}

// Rewound returns the mark that a rewind of a partition to the position writes over the one that stands, which is nil where there is
// none. Stores write it; the error is ErrForward, or says that there is no such partition or position.
func (o Origin) Rewound(p change.Partition, stands *Mark, to change.Position, by, why string) (Mark, error) {
	next := Mark{
		Partition: p, Position: to, Generation: 1, Epoch: change.Epoch{Incarnation: o.Incarnation}, At: time.Now().UTC(), By: by,
		Reason: ReasonRewind, Note: why,
	}.Trimmed()
	from := change.At(o.Start)
	if stands != nil {
		from, next.Generation = stands.Position, stands.Generation+1
	}
	switch {
	case int(p) >= o.Partitions:
		return Mark{}, fmt.Errorf("partition %d of %d", p, o.Partitions)
	case to.IsZero():
		return Mark{}, errors.New("a rewind to no position")
	case to.After(from):
		return Mark{}, fmt.Errorf("partition %d from %s to %s: %w", p, from, to, ErrForward)
	}
	return next, nil
}

// Follows returns an error unless the origin may take the place of the last one.
func (o Origin) Follows(last Origin) error {
	if o.Partitions != last.Partitions || o.Incarnation <= last.Incarnation {
		return fmt.Errorf("incarnation %d of %d partitions cannot follow incarnation %d of %d",
			o.Incarnation, o.Partitions, last.Incarnation, last.Partitions)
	}
	return nil
}
