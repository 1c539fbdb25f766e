package change

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

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

// refVersion is the first byte of the text form.
const refVersion = 2

// refTextSize is the length of the text form before base64: version, cluster, Ref, checksum.
const refTextSize = 1 + 4 + RefSize + 4

// AppendText appends the Ref as opaque text for a cluster: base64 without padding, safe in URLs and
// headers.
func (r Ref) AppendText(b []byte, cluster string) []byte {
	var stack [refTextSize]byte
	raw := append(stack[:0], refVersion)
	raw = binary.BigEndian.AppendUint32(raw, uint32(xxh3.HashString(cluster)))
	raw = r.Append(raw)
	raw = binary.BigEndian.AppendUint32(raw, uint32(xxh3.Hash(raw)))
	return base64.RawURLEncoding.AppendEncode(b, raw)
}

// ParseRefText decodes the output of AppendText for the same cluster.
func ParseRefText(text, cluster string) (Ref, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != refTextSize || raw[0] != refVersion {
		return Ref{}, errors.New("not a position")
	}
	body, sum := raw[:refTextSize-4], raw[refTextSize-4:]
	if uint32(xxh3.Hash(body)) != binary.BigEndian.Uint32(sum) {
		return Ref{}, errors.New("a damaged position")
	}
	if binary.BigEndian.Uint32(raw[1:]) != uint32(xxh3.HashString(cluster)) {
		return Ref{}, errors.New("a position of another cluster")
	}
	return ParseRef(body[5:])
}
