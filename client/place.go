package client

import (
	"bytes"
	"slices"
)

// Sizes in bytes of a position on the wire: the head orders positions, the hash distinguishes those
// with equal heads.
const (
	headSize  = 18
	placeSize = headSize + 16
)

// A place is a position in the log, of a change or between changes. The zero place is earlier than
// everything.
type place [placeSize]byte

// readPlace decodes a position from the wire.
func readPlace(b []byte) (p place, ok bool) {
	if len(b) != placeSize {
		return p, false
	}
	return place(b), true
}

// compare orders places by their heads. The order of places with equal heads is known only to the
// log.
func (p *place) compare(q *place) int { return bytes.Compare(p[:headSize], q[:headSize]) }

func (p *place) isZero() bool { return *p == place{} }

func (p *place) hash() [16]byte { return [16]byte(p[headSize:]) }

// A point is how far the log has been handled: everything earlier than the head of the place and,
// among the places with that head, this one and others.
type point struct {
	place

	others [][16]byte // their hashes; immutable, so that points can share them
}

// saw reports whether the change at a place has been handled. A place without a hash cannot be
// distinguished from others with its head and counts as not handled: delivering it again is safer
// than losing it.
func (at *point) saw(p *place) bool {
	if c := at.compare(p); c != 0 {
		return c > 0
	}
	hash := p.hash()
	return hash != [16]byte{} && at.has(hash)
}

func (at *point) has(hash [16]byte) bool {
	return at.hash() == hash || len(at.others) > 0 && slices.Contains(at.others, hash)
}

// reach advances the point to a place. It never moves back.
func (at *point) reach(p *place) {
	switch c := at.compare(p); {
	case c < 0:
		at.place = *p
		at.others = nil
	case c == 0 && !at.has(p.hash()):
		at.others = append(slices.Clip(at.others), at.hash())
		at.place = *p
	}
}

// join advances the point to include everything handled at either point.
func (at *point) join(other *point) {
	switch c := at.compare(&other.place); {
	case c < 0:
		*at = *other
	case c == 0:
		for _, hash := range other.others {
			if !at.has(hash) {
				at.others = append(slices.Clip(at.others), hash)
			}
		}
		if hash := other.hash(); !at.has(hash) {
			at.others = append(slices.Clip(at.others), hash)
		}
	}
}

// equal reports whether both points include the same changes.
func (at *point) equal(other *point) bool {
	if at.place == other.place && len(at.others) == 0 && len(other.others) == 0 {
		return true
	}
	if at.compare(&other.place) != 0 || len(at.others) != len(other.others) || !at.has(other.hash()) {
		return false
	}
	return !slices.ContainsFunc(other.others, func(hash [16]byte) bool { return !at.has(hash) })
}
