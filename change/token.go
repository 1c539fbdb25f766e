package change

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A Kind distinguishes points of progress from events, with MongoDB's numbers (ResumeTokenData::TokenType).
type Kind uint8

// The kinds of resume tokens.
const (
	KindProgress Kind = 0   // a high-watermark token: between events
	KindEvent    Kind = 128 // the token of an event
)

// A Head is the part of a resume token that contains no document key, so that it may be sent to clients. Heads have the order of their
// tokens. Events of different shards and, since MongoDB 8.0, unrelated events may have equal heads.
type Head struct {
	Time           Timestamp
	Kind           Kind
	TxnOpIndex     uint64 // index in the transaction, from 0
	FromInvalidate bool   // the token of an invalidate event, valid only with startAfter
}

// HeadSize is the length of an encoded head in bytes.
const HeadSize = 8 + 1 + 8 + 1

// Append appends the encoding, whose byte order is the order of heads.
func (h Head) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.Time.T)
	b = binary.BigEndian.AppendUint32(b, h.Time.I)
	b = append(b, byte(h.Kind))
	b = binary.BigEndian.AppendUint64(b, h.TxnOpIndex)
	if h.FromInvalidate {
		return append(b, 1)
	}
	return append(b, 0)
}

// DecodeHead decodes a head at the front of b.
func DecodeHead(b []byte) (Head, error) {
	if len(b) < HeadSize || b[17] > 1 || (b[8] != byte(KindProgress) && b[8] != byte(KindEvent)) {
		return Head{}, ErrToken
	}
	return Head{
		Time:           Timestamp{T: binary.BigEndian.Uint32(b), I: binary.BigEndian.Uint32(b[4:])},
		Kind:           Kind(b[8]),
		TxnOpIndex:     binary.BigEndian.Uint64(b[9:]),
		FromInvalidate: b[17] == 1,
	}, nil
}

// Head returns the head of the position. If the token's inside is unreadable, it has the time only and counts as an event.
func (p Position) Head() Head {
	if p.Token == nil {
		return Head{Time: p.Time}
	}
	h := tokenHead(tokenData(p.Token))
	h.Time = p.Time
	return h
}

// Hash returns a 128-bit hash of the token (XXH3), which distinguishes positions with equal heads. It is zero without a token.
func (p Position) Hash() [16]byte {
	if p.Token == nil {
		return [16]byte{}
	}
	return xxh3.Hash128(p.Token).Bytes()
}

// Numbers in MongoDB's KeyString format (src/mongo/db/storage/key_string): 0x29 is zero, 0x2B a positive integer of one
// byte, and so on to 0x32, eight bytes; the lowest bit says whether a fraction follows.
const (
	keyZero    = 0x29
	keyInt1    = 0x2B
	keyInt8    = 0x32
	keyTrue    = 0x6F
	timeDigits = 18 // hexadecimal digits of the type byte and the cluster time
)

// tokenHead parses what follows the cluster time: the version and, from version 1 on, the token type, the index in the transaction, and
// whether the event is an invalidate. Version 0 (MongoDB 4.0) has events only.
func tokenHead(data []byte) Head {
	h := Head{Kind: KindEvent}
	if len(data) < timeDigits {
		return h
	}
	key := keyString{digits: data[timeDigits:]}
	version, ok := key.number()
	if !ok || version == 0 {
		return h
	}
	kind, ok := key.number()
	if !ok {
		return h
	}
	index, ok := key.number()
	if !ok {
		return h
	}
	if kind == 0 {
		h.Kind = KindProgress
	}
	h.TxnOpIndex = index
	c, ok := key.next()
	h.FromInvalidate = ok && c == keyTrue
	return h
}

// A keyString reads a KeyString from hexadecimal digits.
type keyString struct{ digits []byte }

// next reads a byte.
func (k *keyString) next() (c byte, ok bool) {
	if len(k.digits) < 2 {
		return 0, false
	}
	high, low := hexValue(k.digits[0]), hexValue(k.digits[1])
	k.digits = k.digits[2:]
	return high<<4 | low, high < 16 && low < 16
}

// hexValue returns the value of a hexadecimal digit, or 16.
func hexValue(digit byte) byte {
	switch {
	case '0' <= digit && digit <= '9':
		return digit - '0'
	case 'A' <= digit && digit <= 'F':
		return digit - 'A' + 10
	case 'a' <= digit && digit <= 'f':
		return digit - 'a' + 10
	}
	return 16
}

// number reads a non-negative integer.
func (k *keyString) number() (n uint64, ok bool) {
	kind, ok := k.next()
	if !ok || kind == keyZero {
		return 0, ok
	}
	if kind < keyInt1 || kind > keyInt8 {
		return 0, false
	}
	for range kind - keyInt1 + 1 {
		c, ok := k.next()
		if !ok {
			return 0, false
		}
		n = n<<8 | uint64(c)
	}
	return n >> 1, true
}
