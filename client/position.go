package client

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A Position is how far a program has handled the log, in every partition. It is opaque. As text it
// can be saved anywhere, for example in the transaction that saves the results of the changes, and
// [Config.Position] resumes there. It grows by about 40 bytes for each partition whose position
// differs from that of the others. The zero Position means none.
type Position struct {
	cluster    string
	partitions uint32
	generation uint64
	rest       point // of the partitions that are not in elsewhere
	elsewhere  []partitionPoint
	documents  tally // not part of the text
}

// A tally counts the handled batches with documents of snapshots; several share a place. Each
// progress has its own: its batches are not those of another one, even if they contain the same
// documents.
type tally struct {
	of      *owner // the progress; nil for none
	batches uint64
}

// An owner identifies a progress by its address. It is not empty, because all empty variables may
// have one address.
type owner struct{ _ byte }

// merge returns the higher of two tallies of one progress. Of two progresses it returns the tally
// of the other one.
func (t tally) merge(other tally) tally {
	if other.of == nil || other.of == t.of && other.batches < t.batches {
		return t
	}
	return other
}

// A partitionPoint is the position in one partition.
type partitionPoint struct {
	partition uint32
	at        point
}

// IsZero reports whether there is no position.
func (p Position) IsZero() bool { return p.partitions == 0 }

// After returns the position after a change has been handled. A handler saves
// c.Position().After(change) in the transaction that processes the change; see [Client.Position].
// What several subscriptions get of one change is one step: the position moves with the last of
// them, so that a program that resumes there misses none. A Change that did not come from a client
// leaves the position unchanged.
func (p Position) After(c Change) Position {
	if p.IsZero() || c.place.isZero() || c.more {
		return p
	}
	elsewhere := make([]partitionPoint, 0, len(p.elsewhere)+1)
	if c.AllPartitions {
		p.rest.reach(&c.place)
		for _, e := range p.elsewhere {
			if e.at.reach(&c.place); !e.at.equal(&p.rest) {
				elsewhere = append(elsewhere, e)
			}
		}
		p.elsewhere = elsewhere
		return p
	}
	at := p.rest
	i := 0
	for ; i < len(p.elsewhere) && p.elsewhere[i].partition < c.Partition; i++ {
	}
	next := i
	if i < len(p.elsewhere) && p.elsewhere[i].partition == c.Partition {
		at = p.elsewhere[i].at
		next = i + 1
	}
	at.reach(&c.place)
	elsewhere = append(append(elsewhere, p.elsewhere[:i]...), partitionPoint{c.Partition, at})
	p.elsewhere = append(elsewhere, p.elsewhere[next:]...)
	return p
}

// Merge returns the later of two positions in every partition. It combines the positions that
// concurrent handlers save for each partition. If an operator has rewound the subscriber between
// the two, the one saved after the rewind is returned. If they are from different clusters or
// numbers of partitions, the receiver is returned unless it is zero.
func (p Position) Merge(other Position) Position {
	isForeign := other.cluster != p.cluster || other.partitions != p.partitions
	switch {
	case other.IsZero(), !p.IsZero() && (isForeign || other.generation < p.generation):
		return p
	case p.IsZero(), other.generation > p.generation:
		return other
	}
	merged := Position{cluster: p.cluster, partitions: p.partitions, generation: p.generation, documents: p.documents.merge(other.documents)}
	return gather(merged, func() func(uint32) point {
		mine := p.reader()
		theirs := other.reader()
		return func(partition uint32) point {
			at := mine(partition)
			theirs := theirs(partition)
			at.join(&theirs)
			return at
		}
	})
}

// reader returns a function that returns the point of each partition. It must be called with the
// partitions in order.
func (p *Position) reader() func(partition uint32) point {
	i := 0
	return func(partition uint32) point {
		if i < len(p.elsewhere) && p.elsewhere[i].partition == partition {
			i++
			return p.elsewhere[i-1].at
		}
		return p.rest
	}
}

// gather fills in the points of all partitions. rest becomes the point of the majority or, without
// a majority, the earliest; elsewhere gets the others. Each function that in returns is called with
// every partition in order.
func gather(p Position, in func() func(partition uint32) point) Position {
	at := in()
	votes := 0
	var low point
	for partition := range p.partitions { // Boyer-Moore majority vote
		here := at(partition)
		if partition == 0 || here.compare(&low.place) < 0 {
			low = here
		}
		switch {
		case votes == 0:
			p.rest = here
			votes = 1
		case here.equal(&p.rest):
			votes++
		default:
			votes--
		}
	}
	p.elsewhere = except(&p.rest, p.partitions, in())
	if len(p.elsewhere) >= (int(p.partitions)+1)/2 && !low.equal(&p.rest) {
		p.rest = low
		p.elsewhere = except(&low, p.partitions, in())
	}
	return p
}

// except returns the partitions whose point differs from rest.
func except(rest *point, partitions uint32, at func(uint32) point) (elsewhere []partitionPoint) {
	for partition := range partitions {
		if here := at(partition); !here.equal(rest) {
			elsewhere = append(elsewhere, partitionPoint{partition, here})
		}
	}
	return elsewhere
}

// lowest returns the point up to which all partitions have been handled.
func (p *Position) lowest() point {
	low := p.rest
	for i := range p.elsewhere {
		switch e := &p.elsewhere[i].at; e.compare(&low.place) {
		case -1:
			low = *e
		case 0:
			low.join(e) // hashes identify changes, whatever their partition
		}
	}
	return low
}

// includes reports whether everything up to a place is included in every partition.
func (p *Position) includes(to *place) bool {
	in := func(at *point) bool {
		c := at.compare(to)
		return c > 0 || c == 0 && at.has(to.hash())
	}
	for i := range p.elsewhere {
		if !in(&p.elsewhere[i].at) {
			return false
		}
	}
	return !p.IsZero() && in(&p.rest)
}

// isBeyond reports whether every partition is beyond a place.
func (p *Position) isBeyond(to *place) bool {
	for i := range p.elsewhere {
		if p.elsewhere[i].at.compare(to) <= 0 {
			return false
		}
	}
	return !p.IsZero() && p.rest.compare(to) > 0
}

// covers reports whether everything up to the end of a batch is included. That the place of its
// documents is says only that some batch with this place is. The position's tally must be that of
// the batch's progress.
func (p *Position) covers(a *ack) bool {
	return p.includes(&a.to) && (a.documents <= p.documents.batches || p.isBeyond(&a.to))
}

const (
	positionVersion = 1
	maxPartitions   = 1 << 16
)

var errPosition = errors.New("invalid or corrupted position")

// MarshalText encodes the position as letters, digits, - and _. The zero Position is empty text.
func (p Position) MarshalText() ([]byte, error) {
	if p.IsZero() {
		return []byte{}, nil
	}
	b := []byte{positionVersion}
	b = binary.AppendUvarint(b, uint64(len(p.cluster)))
	b = append(b, p.cluster...)
	b = binary.AppendUvarint(b, uint64(p.partitions))
	b = binary.AppendUvarint(b, p.generation)
	b = p.rest.append(b)
	b = binary.AppendUvarint(b, uint64(len(p.elsewhere)))
	for i := range p.elsewhere {
		b = binary.AppendUvarint(b, uint64(p.elsewhere[i].partition))
		b = p.elsewhere[i].at.append(b)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

func (at *point) append(b []byte) []byte {
	b = append(b, at.place[:]...)
	b = binary.AppendUvarint(b, uint64(len(at.others)))
	for i := range at.others {
		b = append(b, at.others[i][:]...)
	}
	return b
}

// UnmarshalText decodes the output of MarshalText.
func (p *Position) UnmarshalText(text []byte) error {
	*p = Position{}
	if len(text) == 0 {
		return nil
	}
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil || len(b) < 5 || b[0] != positionVersion {
		return errPosition
	}
	body := b[:len(b)-4]
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return errPosition
	}
	r := reader{b: body[1:]}
	var q Position
	q.cluster = string(r.bytes(r.number()))
	partitions := r.number()
	q.generation = r.number()
	q.rest = r.point()
	for n, last := r.number(), -1; n > 0 && r.ok(); n-- {
		e := partitionPoint{partition: uint32(r.number()), at: r.point()}
		if int(e.partition) <= last || uint64(e.partition) >= partitions {
			return errPosition
		}
		last = int(e.partition)
		q.elsewhere = append(q.elsewhere, e)
	}
	isWhole := r.ok() && len(r.b) == 0
	isPossible := 0 < partitions && partitions <= maxPartitions
	if !isWhole || !isPossible || q.rest.isZero() {
		return errPosition
	}
	q.partitions = uint32(partitions)
	*p = q
	return nil
}

// String returns the position as text, as MarshalText does.
func (p Position) String() string {
	text, _ := p.MarshalText() // never fails
	return string(text)
}

// ParsePosition decodes the output of String. Empty text is the zero Position.
func ParsePosition(text string) (p Position, err error) {
	if err := p.UnmarshalText([]byte(text)); err != nil {
		return Position{}, fmt.Errorf("parse position: %w", err)
	}
	return p, nil
}

// A reader decodes a text. After the first failure it returns zero values.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) ok() bool { return !r.failed }

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.failed, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.failed, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) point() (at point) {
	copy(at.place[:], r.bytes(placeSize))
	for n := r.number(); n > 0 && r.ok(); n-- {
		at.others = append(at.others, [16]byte{})
		copy(at.others[len(at.others)-1][:], r.bytes(16))
	}
	return at
}
