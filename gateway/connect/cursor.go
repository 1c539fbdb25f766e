package connect

import (
	"context"
	"slices"
	"time"

	"mongostream/change"
	"mongostream/fault"
	"mongostream/gateway/fanout"
	"mongostream/gateway/streampb"
	"mongostream/gateway/wire"
)

// Cursors writes positions so that they can leave the cluster, and reads them when they come back.
type Cursors interface {
	// Seal returns a position of a partition as a cursor, nil where it cannot be one. It does not block.
	Seal(p change.Partition, at change.Position) []byte
	// Open returns the position that a cursor of a partition was made of, or the fault SessionBadCursor or SessionOldCursor. It may
	// look for newer keys, within the context.
	Open(ctx context.Context, p change.Partition, cursor []byte) (change.Position, error)
}

// readPosition notes where a client says that it stands in a partition: by a place, a cursor, or both.
func (h *hello) readPosition(m *streampb.PartitionPosition) error {
	p := change.Partition(m.GetPartition())
	_, told := h.have[p]
	_, sealed := h.cursors[p]
	if int(m.GetPartition()) >= h.partitions || told || sealed {
		return fault.Newf(fault.SessionBadPosition, "position of partition %d of %d: there is no such partition, or it stands twice", p, h.partitions)
	}
	if cursor := m.GetCursor(); len(cursor) > 0 {
		h.cursors[p] = cursor
		if at := m.GetPosition(); len(at.GetHead()) == 0 && len(at.GetHashes()) == 0 {
			return nil
		}
	}
	place, err := wire.ReadPlace(m.GetPosition().GetHead(), m.GetPosition().GetHashes())
	if err != nil {
		return fault.Newf(fault.SessionBadPosition, "position of partition %d of %d: malformed", p, h.partitions)
	}
	h.have[p] = place
	return nil
}

// openCursors turns the client's cursors into positions. A place that came with a cursor says more than the cursor: a cursor that is refused
// or stands behind the place is not used, and refused says why. One that is refused and alone refuses the session.
func (s *Server) openCursors(ctx context.Context, h *hello) (stood map[change.Partition]change.Position, refused, err error) {
	stood = make(map[change.Partition]change.Position, len(h.cursors))
	for p, cursor := range h.cursors {
		at, err := s.openCursor(ctx, h, p, cursor)
		place, told := h.have[p]
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
			h.have[p], stood[p] = wire.PlaceOf(at), at
		}
	}
	return stood, refused, nil
}

func (s *Server) openCursor(ctx context.Context, h *hello, p change.Partition, cursor []byte) (change.Position, error) {
	switch {
	case s.cfg.Cursors == nil:
		return change.Position{}, fault.Newf(fault.SessionBadCursor, "this node reads no cursors")
	case h.partitions != s.cfg.Partitions:
		return change.Position{}, fault.Newf(fault.SessionBadCursor, "the cursors are of %d partitions, there are %d", h.partitions, s.cfg.Partitions)
	}
	return s.cfg.Cursors.Open(ctx, p, cursor)
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

// rearmost returns where the log is to be read from on for whoever stands at all the places: exactly, where the rearmost is known exactly.
func rearmost(have map[change.Partition]wire.Place, stood map[change.Partition]change.Position) (start change.Position) {
	for p, place := range have {
		at := change.Later(change.At(place.Time()), stood[p])
		if start.IsZero() || start.After(at) {
			start = at
		}
	}
	return start
}

// cursorRefused tells a client that a cursor of its hello was not used.
func cursorRefused(err error) fanout.Notice {
	return fanout.Notice{Kind: "cursor_refused", Text: err.Error() + ". The session goes on from the position.", Code: fault.Of(err), At: time.Now()}
}
