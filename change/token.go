package change

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A Kind tells points of progress from events, with MongoDB's own numbers (ResumeTokenData::TokenType).
type Kind uint8

// The two kinds of resume token.
const (
	KindProgress Kind = 0   // a high-watermark token: between events
	KindEvent    Kind = 128 // the token of an event
)

// A Head is what the front of a resume token tells of a position without naming a document: heads may cross the wire.
// Heads order as their tokens do; events of different shards, and since MongoDB 8.0 unrelated events, may share one.
type Head struct {
	Time           Timestamp
	Kind           Kind
	TxnOpIndex     uint64 // the event's place in its transaction, from 0
	FromInvalidate bool   // the token of an invalidate event, usable with startAfter only
}

// HeadSize is the length of an encoded head in bytes.
const HeadSize = 8 + 1 + 8 + 1

// Append appends the head's encoding, whose byte order is the order of the heads.
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

// DecodeHead reads an encoded head from the front of b.
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

// Head returns the position's head. Of a token whose inside it cannot read it tells the time, and takes it for an event.
func (p Position) Head() Head {
	if p.Token == nil {
		return Head{Time: p.Time}
	}
	h := tokenHead(tokenData(p.Token))
	h.Time = p.Time
	return h
}

// Hash is a 128-bit hash of the token (XXH3), which tells positions of equal heads apart without naming a document.
// A position without a token hashes to zero.
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

// tokenHead reads what follows the cluster time: version, then from version 1 on the token type, the index in the
// transaction and whether the event is an invalidate. Version 0 (MongoDB 4.0) has events only.
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

// A keyString reads a KeyString from its hexadecimal digits.
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

// hexValue returns what a hexadecimal digit is worth, or 16.
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

// number reads an integer that is not negative.
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
