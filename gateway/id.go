package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// An eventID is a position as subscribers see it: an opaque text.
type eventID struct {
	head change.Head
	hash [16]byte // of the token, which tells events of equal heads apart
}

// idVersion is the first byte of every id.
const idVersion = 1

// idSize is the length of an id before it is written as text: version, partitions, cluster, head, hash, checksum.
const idSize = 1 + 2 + 4 + change.HeadSize + 16 + 4

// An issuer writes and reads the ids of one cluster.
type issuer struct {
	cluster    uint32
	partitions uint16
}

func newIssuer(cluster string, partitions int) issuer {
	return issuer{cluster: uint32(xxh3.HashString(cluster)), partitions: uint16(partitions - 1)}
}

// write appends the id of a position as text.
func (i issuer) write(b []byte, p change.Position) []byte {
	var stack [idSize]byte
	raw := append(stack[:0], idVersion)
	raw = binary.BigEndian.AppendUint16(raw, i.partitions)
	raw = binary.BigEndian.AppendUint32(raw, i.cluster)
	raw = p.Head().Append(raw)
	hash := p.Hash()
	raw = append(raw, hash[:]...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(xxh3.Hash(raw)))
	return base64.RawURLEncoding.AppendEncode(b, raw)
}

// read reads an id that this cluster has written.
func (i issuer) read(text string) (id eventID, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != idSize || raw[0] != idVersion {
		return id, errors.New("not an event id")
	}
	body, sum := raw[:idSize-4], raw[idSize-4:]
	if uint32(xxh3.Hash(body)) != binary.BigEndian.Uint32(sum) {
		return id, errors.New("a damaged event id")
	}
	if binary.BigEndian.Uint32(raw[3:]) != i.cluster {
		return id, errors.New("an event id of another cluster")
	}
	if id.head, err = change.DecodeHead(raw[7:]); err != nil {
		return id, fmt.Errorf("a damaged event id: %w", err)
	}
	copy(id.hash[:], raw[7+change.HeadSize:])
	return id, nil
}

// A resumption skips what a subscriber with an id has seen. The log is read again from the id's time on: what has a lower head has
// been seen, what has a higher one has not. Events of an equal head are told apart by their hashes only; they are held back until
// the id's own event comes, and with it all before it have been seen, or until a higher head comes, and none has.
type resumption struct {
	id   eventID
	head []byte
	held []change.Event
}

func resume(id eventID) *resumption {
	return &resumption{id: id, head: id.head.Append(nil)}
}

// start is where the log is read again.
func (r *resumption) start() change.Position { return change.At(r.id.head.Time) }

// passed reports whether the log has been read beyond the id's head: what is held back then has not been seen.
func (r *resumption) passed(p change.Position) bool {
	return bytes.Compare(p.Head().Append(nil), r.head) > 0
}

// pass takes the next event and returns those that the subscriber has not seen; done says that every event after this is one.
func (r *resumption) pass(e *change.Event) (fresh []change.Event, done bool) {
	p := e.Position()
	switch c := bytes.Compare(p.Head().Append(nil), r.head); {
	case c < 0:
		return nil, false
	case c > 0:
		return append(r.held, *e), true
	case p.Hash() == r.id.hash:
		r.held = nil
		return nil, true
	}
	r.held = append(r.held, e.Over(append([]byte(nil), e.Raw()...)))
	return nil, false
}
