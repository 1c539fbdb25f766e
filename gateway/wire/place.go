package wire

import (
	"bytes"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Place is a position as gateways know it: a head, and the hashes of tokens seen at that head, none for progress.
type Place struct {
	Head   [change.HeadSize]byte
	Hashes [][16]byte
}

// PlaceOf returns the place of a position.
func PlaceOf(p change.Position) Place {
	place := Place{Head: HeadOf(p)}
	if !p.IsProgress() {
		place.Hashes = [][16]byte{p.Hash()}
	}
	return place
}

// HeadOf returns the encoded head of a position.
func HeadOf(p change.Position) (head [change.HeadSize]byte) {
	p.Head().Append(head[:0])
	return head
}

// ReadPlace makes a place of what a gateway sends.
func ReadPlace(head []byte, hashes [][]byte) (p Place, err error) {
	if len(head) != change.HeadSize {
		return p, change.ErrToken
	}
	if _, err := change.DecodeHead(head); err != nil {
		return p, err
	}
	copy(p.Head[:], head)
	for _, h := range hashes {
		if len(h) != 16 {
			return p, change.ErrToken
		}
		p.Hashes = append(p.Hashes, [16]byte(h))
	}
	return p, nil
}

// Time returns the cluster time.
func (p Place) Time() change.Timestamp {
	h, _ := change.DecodeHead(p.Head[:]) // a Place has a head that can be read
	return h.Time
}

// Compare orders places by their heads.
func (p Place) Compare(q Place) int { return bytes.Compare(p.Head[:], q.Head[:]) }

// Has reports whether somebody who stands at the place has seen what has the head and the hash.
func (p Place) Has(head [change.HeadSize]byte, hash func() [16]byte) bool {
	switch c := bytes.Compare(head[:], p.Head[:]); {
	case c != 0:
		return c < 0
	default:
		return slices.Contains(p.Hashes, hash())
	}
}
