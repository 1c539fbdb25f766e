package client

import (
	"bytes"
	"slices"
)

// Sizes of a position of the wire in bytes: the head orders positions, and the hash tells apart those that share a head.
const (
	headSize  = 18
	placeSize = headSize + 16
)

// A place is a position of the log, of one change or between changes. The zero place is earlier than everything.
type place [placeSize]byte

// readPlace reads a place of the wire.
func readPlace(b []byte) (p place, ok bool) {
	if len(b) != placeSize {
		return p, false
	}
	return place(b), true
}

// compare orders places by their heads. Among equal heads only the log knows the order.
func (p *place) compare(q *place) int { return bytes.Compare(p[:headSize], q[:headSize]) }

func (p *place) isZero() bool { return *p == place{} }

func (p *place) hash() [16]byte { return [16]byte(p[headSize:]) }

// A point is how far something has been handled: everything earlier than the head of a place, and of the places with that head this one
// and others.
type point struct {
	place

	others [][16]byte // their hashes; never changed, so that points can share them
}

// saw reports whether the change at a place has been handled. One without a hash cannot be told from others of its head, and counts as not
// handled there: to deliver it again is better than never.
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

// reach moves the point to a place. It never moves back.
func (at *point) reach(p *place) {
	switch c := at.compare(p); {
	case c < 0:
		at.place, at.others = *p, nil
	case c == 0 && !at.has(p.hash()):
		at.others = append(slices.Clip(at.others), at.hash())
		at.place = *p
	}
}

// join moves the point to where everything has been handled that either has.
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

// equal reports whether the same has been handled at both.
func (at *point) equal(other *point) bool {
	if at.place == other.place && len(at.others) == 0 && len(other.others) == 0 {
		return true
	}
	if at.compare(&other.place) != 0 || len(at.others) != len(other.others) || !at.has(other.hash()) {
		return false
	}
	return !slices.ContainsFunc(other.others, func(hash [16]byte) bool { return !at.has(hash) })
}
