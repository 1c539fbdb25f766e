package partition

import (
	"bytes"
	"slices"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Position is a place in the log. Heads are compared as bytes; changes of different shards may share one and are told apart by the hashes
// of their tokens, so that a position holds the hashes that were seen at its head. It names no document.
type Position struct {
	Head   []byte   `json:"head"`
	Hashes [][]byte `json:"hashes,omitempty"`
}

// Positions are where a gateway stands: one Position for each partition of a cluster. As JSON they can be kept anywhere.
type Positions struct {
	Cluster        string              `json:"cluster"`
	PartitionCount uint32              `json:"partition_count"`
	Partitions     map[uint32]Position `json:"partitions"`
}

// Complete reports whether there is a position for every partition.
func (p *Positions) Complete() bool {
	if p.PartitionCount == 0 || len(p.Partitions) != int(p.PartitionCount) {
		return false
	}
	for partition, at := range p.Partitions {
		if partition >= p.PartitionCount || len(at.Head) == 0 {
			return false
		}
	}
	return true
}

// Lowest returns a position that every partition has reached.
func (p *Positions) Lowest() (low Position) {
	first := true
	for _, at := range p.Partitions {
		switch c := bytes.Compare(at.Head, low.Head); {
		case first || c < 0:
			low, first = at, false
		case c == 0:
			low = low.join(at) // hashes name changes, whatever their partition
		}
	}
	return low
}

// Of reads a position of the wire. It keeps what it reads.
func Of(m *streampb.Position) Position {
	return Position{Head: m.GetHead(), Hashes: m.GetHashes()}
}

func (p Position) message() *streampb.Position {
	return &streampb.Position{Head: p.Head, Hashes: p.Hashes}
}

// Equal reports whether both are the position of one change.
func (p Position) Equal(q Position) bool {
	return bytes.Equal(p.Head, q.Head) && slices.EqualFunc(p.Hashes, q.Hashes, bytes.Equal)
}

// reaches reports whether whoever stands at p has seen everything that one who stands at q has.
func (p Position) reaches(q Position) bool {
	if c := bytes.Compare(p.Head, q.Head); c != 0 {
		return c > 0
	}
	for _, hash := range q.Hashes {
		if !p.has(hash) {
			return false
		}
	}
	return true
}

// Saw reports whether whoever stands at p has seen the change at q. One without a hash cannot be told from others of its head, and counts as
// not seen there: to deliver it again is better than never.
func (p Position) Saw(q Position) bool {
	if c := bytes.Compare(p.Head, q.Head); c != 0 {
		return c > 0
	}
	return len(q.Hashes) > 0 && p.reaches(q)
}

func (p Position) has(hash []byte) bool {
	return slices.ContainsFunc(p.Hashes, func(h []byte) bool { return bytes.Equal(h, hash) })
}

// join returns where somebody stands who has stood at both. It changes neither.
func (p Position) join(q Position) Position {
	switch c := bytes.Compare(p.Head, q.Head); {
	case c > 0:
		return p
	case c < 0:
		return q
	}
	hashes := p.Hashes[:len(p.Hashes):len(p.Hashes)]
	for _, hash := range q.Hashes {
		if !p.has(hash) {
			hashes = append(hashes, hash)
		}
	}
	return Position{Head: p.Head, Hashes: hashes}
}
