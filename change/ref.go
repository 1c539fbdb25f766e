package change

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"
)

// A Ref is a position outside of the node: the head of the token and a hash of the whole token. It
// reveals no document key. A reader resumes exactly after it: the head says where to begin in the
// log, the hash identifies the last event among those with that head. The zero Ref is earlier than
// everything.
type Ref struct {
	head [HeadSize]byte
	hash [16]byte // zero for a point of progress
}

// RefSize is the length of an encoded Ref in bytes.
const RefSize = HeadSize + 16

// Ref returns the position's Ref.
func (p Position) Ref() (r Ref) {
	head, rest := p.head()
	head.Append(r.head[:0])
	if head.Kind != KindProgress {
		r.hash = p.hash(rest)
	}
	return r
}

// Between returns the Ref of a point with the same head that is none of its events: a reader that
// resumes there may have seen none of them.
func (r Ref) Between() Ref { return Ref{head: r.head} }

// IsBetween reports whether the Ref is no event's.
func (r Ref) IsBetween() bool { return r.hash == [16]byte{} }

// IsZero reports whether the Ref is unset.
func (r Ref) IsZero() bool { return r == Ref{} }

// Head returns the head of the position.
func (r Ref) Head() Head {
	h, _ := DecodeHead(r.head[:]) // a Ref has a valid head, or is zero
	return h
}

// Time returns the cluster time.
func (r Ref) Time() Timestamp { return r.Head().Time }

// Compare orders Refs by their heads. Heads may be equal for events of different shards and, since
// MongoDB 8.0, for unrelated events; their order is known only to the log.
func (r Ref) Compare(q Ref) int { return bytes.Compare(r.head[:], q.head[:]) }

// Append appends the encoding, RefSize bytes whose order is that of Compare.
func (r Ref) Append(b []byte) []byte { return append(append(b, r.head[:]...), r.hash[:]...) }

// ParseRef decodes a Ref. It returns ErrToken if the encoding is invalid.
func ParseRef(b []byte) (r Ref, err error) {
	if len(b) != RefSize {
		return r, fmt.Errorf("%w: %d bytes", ErrToken, len(b))
	}
	if _, err := DecodeHead(b); err != nil {
		return r, err
	}
	copy(r.head[:], b)
	copy(r.hash[:], b[HeadSize:])
	return r, nil
}

// The text form is a byte, the cluster, the time, an index and a hash if there are some, and a
// checksum. The upper half of the byte is the version, its bits say what the Ref has.
const (
	refEvent      = 1 << iota // the head is that of an event
	refInvalidate             // of an invalidate event
	refNumbered               // the head has an index in its transaction
	refHashed                 // the Ref has a hash
	refVersion    = 3 << 4
	refParts      = 1<<4 - 1
)

// refTextSize bounds the length of the text form before base64. Most are of 30 bytes.
const refTextSize = 1 + 4 + 4 + 2*binary.MaxVarintLen64 + 16 + 4

// AppendText appends the Ref as opaque text for a cluster: base64 without padding, safe in URLs and
// headers.
func (r Ref) AppendText(b []byte, cluster string) []byte {
	var stack [refTextSize]byte
	h := r.Head()
	raw := append(stack[:0], refVersion)
	raw = binary.BigEndian.AppendUint32(raw, uint32(xxh3.HashString(cluster)))
	raw = binary.BigEndian.AppendUint32(raw, h.Time.T)
	raw = binary.AppendUvarint(raw, uint64(h.Time.I))
	if h.Kind == KindEvent {
		raw[0] |= refEvent
	}
	if h.FromInvalidate {
		raw[0] |= refInvalidate
	}
	if h.TxnOpIndex > 0 {
		raw[0] |= refNumbered
		raw = binary.AppendUvarint(raw, h.TxnOpIndex)
	}
	if !r.IsBetween() {
		raw[0] |= refHashed
		raw = append(raw, r.hash[:]...)
	}
	raw = binary.BigEndian.AppendUint32(raw, uint32(xxh3.Hash(raw)))
	return base64.RawURLEncoding.AppendEncode(b, raw)
}

// isRefVersion reports whether a position of a version that is read begins with a byte.
func isRefVersion(b byte) bool { return b&^refParts == refVersion || b == refVersion2 }

// ParseRefText decodes the output of AppendText for the same cluster, also that of builds in which
// every text had the same length.
func ParseRefText(text, cluster string) (Ref, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < refOver || !isRefVersion(raw[0]) {
		return Ref{}, errors.New("not a position")
	}
	body := raw[:len(raw)-4]
	if uint32(xxh3.Hash(body)) != binary.BigEndian.Uint32(raw[len(body):]) {
		return Ref{}, errors.New("a damaged position")
	}
	if binary.BigEndian.Uint32(raw[1:]) != uint32(xxh3.HashString(cluster)) {
		return Ref{}, errors.New("a position of another cluster")
	}
	if raw[0] == refVersion2 {
		return ParseRef(body[5:])
	}
	return parseRefParts(raw[0], body[5:])
}

const (
	refVersion2 = 2                 // of earlier builds: a head and a hash as ParseRef reads them
	refOver     = 1 + 4 + 4 + 1 + 4 // the shortest text
)

// parseRefParts decodes the head and the hash of a text.
func parseRefParts(parts byte, b []byte) (r Ref, err error) {
	h := Head{Kind: KindProgress, FromInvalidate: parts&refInvalidate != 0}
	if parts&refEvent != 0 {
		h.Kind = KindEvent
	}
	h.Time.T = binary.BigEndian.Uint32(b)
	b = b[4:]
	number := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err = ErrToken
			return 0
		}
		b = b[size:]
		return n
	}
	i := number()
	if h.Time.I = uint32(i); i > math.MaxUint32 {
		err = ErrToken
	}
	if parts&refNumbered != 0 {
		h.TxnOpIndex = number()
	}
	if parts&refHashed != 0 && copy(r.hash[:], b) == len(r.hash) {
		b = b[len(r.hash):]
	}
	if err != nil || len(b) != 0 {
		return Ref{}, ErrToken
	}
	h.Append(r.head[:0])
	return r, nil
}
