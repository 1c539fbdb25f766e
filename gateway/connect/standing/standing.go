package standing

import (
	"context"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/gateway/wire"
)

// Cursors writes positions so that they can leave the cluster, and reads them when they come back.
type Cursors interface {
	// Seal returns a position of a partition as a cursor, nil where it cannot be one. It does not block.
	Seal(p change.Partition, at change.Position) []byte
	// Open returns the position that a cursor of a partition was made of, or the fault SessionBadCursor or SessionOldCursor. It may
	// look for newer keys, within the context.
	Open(ctx context.Context, p change.Partition, cursor []byte) (change.Position, error)
}

// A Standing is where a client says that it stands.
type Standing struct {
	Partitions int // that it is of
	Have       map[change.Partition]wire.Place
	cursors    map[change.Partition][]byte
}

// Read reads what a client says of so many partitions. What cannot be read is the fault SessionBadPosition.
func Read(partitions int, positions []*streampb.PartitionPosition) (*Standing, error) {
	s := &Standing{Partitions: partitions, Have: make(map[change.Partition]wire.Place), cursors: make(map[change.Partition][]byte)}
	for _, m := range positions {
		if err := s.read(m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Standing) read(m *streampb.PartitionPosition) error {
	p := change.Partition(m.GetPartition())
	_, told := s.Have[p]
	_, sealed := s.cursors[p]
	if int(m.GetPartition()) >= s.Partitions || told || sealed {
		return fault.Newf(fault.SessionBadPosition, "position of partition %d of %d: there is no such partition, or it stands twice", p, s.Partitions)
	}
	if cursor := m.GetCursor(); len(cursor) > 0 {
		s.cursors[p] = cursor
		if at := m.GetPosition(); len(at.GetHead()) == 0 && len(at.GetHashes()) == 0 {
			return nil
		}
	}
	place, err := wire.ReadPlace(m.GetPosition().GetHead(), m.GetPosition().GetHashes())
	if err != nil {
		return fault.Newf(fault.SessionBadPosition, "position of partition %d of %d: malformed", p, s.Partitions)
	}
	s.Have[p] = place
	return nil
}

// Open turns the client's cursors into positions, in a cluster of so many partitions; nil Cursors read none. A place that came with a cursor
// says more than the cursor: a cursor that is refused or stands behind the place is not used, and refused says why. One that is refused
// and alone is an error.
func (s *Standing) Open(ctx context.Context, c Cursors, partitions int) (stood map[change.Partition]change.Position, refused, err error) {
	stood = make(map[change.Partition]change.Position, len(s.cursors))
	for p, cursor := range s.cursors {
		at, err := s.open(ctx, c, partitions, p, cursor)
		place, told := s.Have[p]
		if err == nil && told && !covers(place, at) {
			err = fault.Newf(fault.SessionBadCursor, "partition %d: the cursor stands behind the position that came with it", p)
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil && !told:
			return nil, nil, err
		case err != nil:
			refused = err
		case told:
			stood[p] = at
		default:
			s.Have[p], stood[p] = wire.PlaceOf(at), at
		}
	}
	return stood, refused, nil
}

func (s *Standing) open(ctx context.Context, c Cursors, partitions int, p change.Partition, cursor []byte) (change.Position, error) {
	switch {
	case c == nil:
		return change.Position{}, fault.Newf(fault.SessionBadCursor, "this node reads no cursors")
	case s.Partitions != partitions:
		return change.Position{}, fault.Newf(fault.SessionBadCursor, "the cursors are of %d partitions, there are %d", s.Partitions, partitions)
	}
	return c.Open(ctx, p, cursor)
}

// covers reports whether whoever stands at the place has everything up to the position.
func covers(place wire.Place, at change.Position) bool {
	switch c := place.Compare(wire.PlaceOf(at)); {
	case c != 0:
		return c > 0
	default:
		return at.IsProgress() || slices.Contains(place.Hashes, at.Hash())
	}
}

// Rearmost returns where the log is to be read from on for whoever stands there: exactly, where the rearmost partition is known exactly.
func (s *Standing) Rearmost(stood map[change.Partition]change.Position) (start change.Position) {
	for p, place := range s.Have {
		at := change.Later(change.At(place.Time()), stood[p])
		if start.IsZero() || start.After(at) {
			start = at
		}
	}
	return start
}
