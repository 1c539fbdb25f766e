package change

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"
)

// A Timestamp is a MongoDB cluster time: T seconds since 1970 and the I-th operation in that
// second, from 1.
type Timestamp struct {
	T, I uint32
}

// IsZero reports whether the timestamp is unset.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// Compare orders cluster times.
func (t Timestamp) Compare(u Timestamp) int {
	if c := cmp.Compare(t.T, u.T); c != 0 {
		return c
	}
	return cmp.Compare(t.I, u.I)
}

// Next returns the next cluster time.
func (t Timestamp) Next() Timestamp {
	t.I++
	return t
}

// Prev returns the previous cluster time. The timestamp must not be zero.
func (t Timestamp) Prev() Timestamp {
	if t.I == 0 {
		return Timestamp{T: t.T - 1, I: math.MaxUint32}
	}
	t.I--
	return t
}

// Time returns the second of the cluster time, by the server's clock.
func (t Timestamp) Time() time.Time { return time.Unix(int64(t.T), 0).UTC() }

// String formats the timestamp as seconds:increment.
func (t Timestamp) String() string { return string(t.AppendText(nil)) }

// AppendText appends what String returns.
func (t Timestamp) AppendText(b []byte) []byte {
	b = append(strconv.AppendUint(b, uint64(t.T), 10), ':')
	return strconv.AppendUint(b, uint64(t.I), 10)
}

// A Position is a place in the log: that of an event, or a point of progress between events.
//
// The zero Position is before everything. A Position without a Token is before every event of its
// time, like MongoDB's high-watermark tokens.
type Position struct {
	// Token is the whole resume token, a BSON document {_data: string, _typeBits?: binary}. It
	// contains the document key: never log it or send it to clients.
	Token []byte
	// Time is the cluster time of the token.
	Time Timestamp
}

// ErrToken says that a resume token does not have the format {_data: "82…"}, which MongoDB uses
// since 4.0.7.
var ErrToken = errors.New("resume token of an unknown format")

// ParseToken returns the position of a resume token, which it aliases. It reads the time from the
// token's first nine bytes (0x82, seconds, increment). Tokens are officially opaque, but many tools
// rely on this. It returns ErrToken for another format.
func ParseToken(token []byte) (Position, error) {
	data := tokenData(token)
	if len(data) < 18 || data[0] != '8' || data[1] != '2' {
		return Position{}, ErrToken
	}
	var b [8]byte
	if _, err := hex.Decode(b[:], data[2:18]); err != nil {
		return Position{}, ErrToken
	}
	t := Timestamp{T: binary.BigEndian.Uint32(b[:4]), I: binary.BigEndian.Uint32(b[4:])}
	return Position{Token: token, Time: t}, nil
}

// At returns the position before every event of time t.
func At(t Timestamp) Position { return Position{Time: t} }

// IsZero reports whether the position is unset.
func (p Position) IsZero() bool { return p.Token == nil && p.Time.IsZero() }

// Compare orders positions as the stream does: by the tokens' _data, whose hexadecimal digits have
// the order of their bytes. Tokens of different versions are ordered by their heads; events with
// equal heads have an order in each version and none between them, and the earlier version comes
// first here so that the order is total. To decide whether an event may be skipped, use Covers or
// Has instead.
func (p Position) Compare(q Position) int {
	c, _ := p.order(q)
	return c
}

// order compares positions. sure is false if the log may have them in another order.
func (p Position) order(q Position) (c int, sure bool) {
	if c := p.Time.Compare(q.Time); c != 0 {
		return c, true
	}
	switch {
	case p.Token != nil && q.Token != nil:
		a, b := tokenData(p.Token), tokenData(q.Token)
		if !bytes.Equal(versionOf(a), versionOf(b)) {
			return orderOfVersions(a, b)
		}
		return bytes.Compare(a, b), true
	case p.Token != nil:
		return orderAfterTime(p), true
	case q.Token != nil:
		return -orderAfterTime(q), true
	}
	return 0, true
}

// orderAfterTime compares p, which has a token, with its time: equal for a high-watermark token,
// later for an event.
func orderAfterTime(p Position) int {
	if p.IsProgress() {
		return 0
	}
	return 1
}

// Comparable reports whether the tokens of two positions of one time order them in the log: they
// are of the same version, or one of them is a point of progress. MongoDB changes the version when
// it is upgraded or downgraded, under the streams that are open.
func (p Position) Comparable(q Position) bool {
	return p.IsProgress() || q.IsProgress() || bytes.Equal(versionOf(tokenData(p.Token)), versionOf(tokenData(q.Token)))
}

// Covers reports whether everything up to q comes at or before p in the log. It is false if that is
// not known, because q is an event of the same time and place in a transaction and its token is of
// another version.
func (p Position) Covers(q Position) bool {
	c, sure := p.order(q)
	return sure && c >= 0
}

// Has reports whether an event at q is known to come at or before p in the log. It may be false for
// an event that does: such an event is delivered again rather than lost.
func (p Position) Has(q Position) bool {
	c, sure := p.order(q)
	return sure && c >= 0 || !sure && p.Ref() == q.Ref()
}

// After reports whether p is later than q.
func (p Position) After(q Position) bool { return p.Compare(q) > 0 }

// IsProgress reports whether the position is a point of progress (a time or a high-watermark
// token), not an event. Any stream can resume at a point of progress.
func (p Position) IsProgress() bool {
	return p.Token == nil || p.Head().Kind == KindProgress
}

// Clone returns a copy that aliases nothing.
func (p Position) Clone() Position {
	p.Token = slices.Clone(p.Token)
	return p
}

// String returns the time and kind of the position, never the token.
func (p Position) String() string {
	if p.IsProgress() {
		return p.Time.String()
	}
	return p.Time.String() + "+event"
}

// Later returns the later of two positions.
func Later(p, q Position) Position {
	if q.After(p) {
		return q
	}
	return p
}

// Earlier returns the earlier of two positions, or the beginning of their time if their order is
// not known.
func Earlier(p, q Position) Position {
	switch {
	case q.Covers(p):
		return p
	case p.Covers(q):
		return q
	}
	return At(p.Time)
}

// tokenData returns the hexadecimal digits of the token's _data, which MongoDB always puts first.
func tokenData(token []byte) []byte {
	const at = 4 + 1 + len("_data\x00") + 4 // document length, type, name, string length
	if len(token) > at+1 && token[4] == TypeString && string(token[5:at-4]) == "_data\x00" {
		if n := int(binary.LittleEndian.Uint32(token[at-4:])); n >= 1 && n <= len(token)-at-1 {
			return token[at : at+n-1]
		}
		return nil
	}
	if doc, err := documentAt(token); err == nil {
		return lookup(doc, "_data").Text()
	}
	return nil
}
