package partition

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A cursor is what a node gave with a batch, to go on exactly behind it.
type cursor struct {
	sealed []byte
	at     Position // where the batch ended
}

// or returns which of two to keep by one who stands at a position: the further, of those that are not beyond it.
func (c cursor) or(d cursor, stand Position) cursor {
	if len(d.sealed) == 0 || !stand.reaches(d.at) || len(c.sealed) > 0 && !d.at.reaches(c.at) {
		return c
	}
	return d
}

// Stand returns where partitions stand, for the wire, in their order, with their cursors as far as so many bytes hold them. The rearmost
// come first: where they stand the log is opened. Partitions of which nothing is known are left out.
func (s *Set) Stand(partitions []uint32, room int) (m []*streampb.PartitionPosition) {
	lanes := s.list()
	var cursors []*streampb.PartitionPosition
	for _, partition := range slices.Sorted(slices.Values(partitions)) {
		at, known, c := s.stand(lanes[partition])
		if !known {
			continue
		}
		position := &streampb.PartitionPosition{Partition: partition, Position: at.message()}
		m = append(m, position)
		room -= proto.Size(position) + frame
		if len(c.sealed) > 0 {
			cursors = append(cursors, &streampb.PartitionPosition{Partition: uint32(len(m) - 1), Position: c.at.message(), Cursor: c.sealed})
		}
	}
	slices.SortStableFunc(cursors, func(a, b *streampb.PartitionPosition) int {
		return bytes.Compare(a.GetPosition().GetHead(), b.GetPosition().GetHead())
	})
	for _, c := range cursors {
		if room -= len(c.GetCursor()) + frame; room < 0 {
			break
		}
		m[c.GetPartition()].Cursor = c.GetCursor()
	}
	return m
}

// frame is at most what a field takes beside what is in it.
const frame = 10

// stand returns where a partition stands, which may be nil, by itself or as all do.
func (s *Set) stand(l *Lane) (at Position, known bool, c cursor) {
	if l != nil {
		l.mu.Lock()
		have, c := l.mu.have, l.mu.cursor
		l.mu.Unlock()
		if have.Known {
			return have.At, true, c
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.origin == nil {
		return Position{}, false, c
	}
	return *s.mu.origin, true, c
}
