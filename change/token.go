package change

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A Kind distinguishes points of progress from events, with MongoDB's numbers
// (ResumeTokenData::TokenType).
type Kind uint8

// The kinds of resume tokens.
const (
	KindProgress Kind = 0   // a high-watermark token: between events
	KindEvent    Kind = 128 // the token of an event
)

// A Head is the part of a resume token that contains no document key, so that it may be sent to
// clients. Heads have the order of their tokens. Events of different shards and, since MongoDB 8.0,
// unrelated events may have equal heads.
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
	if len(b) < HeadSize {
		return Head{}, ErrToken
	}
	kind := Kind(b[8])
	isKnown := kind == KindProgress || kind == KindEvent
	if !isKnown || b[17] > 1 {
		return Head{}, ErrToken
	}
	return Head{
		Time:           Timestamp{T: binary.BigEndian.Uint32(b), I: binary.BigEndian.Uint32(b[4:])},
		Kind:           kind,
		TxnOpIndex:     binary.BigEndian.Uint64(b[9:]),
		FromInvalidate: b[17] == 1,
	}, nil
}

// Head returns the head of the position. If the token's inside is unreadable, it has the time only
// and counts as an event.
func (p Position) Head() Head {
	h, _ := p.head()
	return h
}

// head returns the head, and the digits of the token after it, nil if they are unreadable.
func (p Position) head() (h Head, rest []byte) {
	if p.Token == nil {
		return Head{Time: p.Time}, nil
	}
	h, rest = tokenHead(tokenData(p.Token))
	h.Time = p.Time
	return h, rest
}

// Hash returns a 128-bit hash (XXH3) of the collection and the document that the token names, which
// distinguishes positions with equal heads. It is the same for all tokens of one change: versions
// and fragments do not count. It is zero without a token.
func (p Position) Hash() [16]byte {
	if p.Token == nil {
		return [16]byte{}
	}
	_, rest := p.head()
	return p.hash(rest)
}

// hash is Hash for callers that have the digits after the head.
func (p Position) hash(rest []byte) [16]byte {
	s, ok := tokenSubject(tokenData(p.Token), rest)
	if !ok {
		return xxh3.Hash128(p.Token).Bytes()
	}
	return xxh3.Hash128Seed(s.document, xxh3.Hash(s.collection)).Bytes()
}

// Form identifies the form of the token: its version, and which fragment of a split event it names.
// One stream gives a change one token; a change under tokens of two forms comes from two streams.
func (p Position) Form() uint16 {
	data := tokenData(p.Token)
	version := versionOf(data)
	if version == nil {
		return 0
	}
	form := uint16(hexValue(version[2])<<4|hexValue(version[3])) << 8
	if string(version) == version2 {
		_, fragment := withoutFragment(bytes.TrimSuffix(data, []byte(keyEnd)))
		form |= uint16(min(fragment, 0xFF))
	}
	return form
}

// Parts of MongoDB's KeyString format (src/mongo/db/storage/key_string). 0x29 is zero, 0x2B a
// positive integer of one byte, and so on to 0x32, eight bytes; the lowest bit says whether a
// fraction follows.
const (
	keyZero    = 0x29
	keyInt1    = 0x2B
	keyInt8    = 0x32
	keyTrue    = 0x6F
	timeDigits = 18 // hexadecimal digits of the type byte and the cluster time

	keyEnd         = "04" // of the token
	keyClose       = "00" // of an object or a string
	keyNull        = "14"
	keyUUID        = "5A1004"                                                 // binary, 16 bytes, subtype 4
	keyIdentifier  = "46" + "3C" + "6F7065726174696F6E54797065" + "00" + "3C" // an object {operationType: "…
	keyDocumentKey = "46" + "646F63756D656E744B6579" + "00"                   // …", documentKey:
	keyRename      = "72656E616D65"

	collectionDigits = len(keyUUID) + 2*16
)

// versionOf returns the digits of a token's version.
func versionOf(data []byte) []byte {
	if len(data) < timeDigits+4 {
		return nil
	}
	return data[timeDigits : timeDigits+4]
}

// orderOfVersions compares tokens of one time and of different versions. It orders them by the
// place in the transaction, which all known versions have; sure is false if only later parts could
// order them.
func orderOfVersions(a, b []byte) (c int, sure bool) {
	h, _ := tokenHead(a)
	i, _ := tokenHead(b)
	if c := cmp.Compare(h.Kind, i.Kind); c != 0 || h.Kind == KindProgress {
		return c, true
	}
	var x, y [HeadSize]byte
	if c := bytes.Compare(h.Append(x[:0]), i.Append(y[:0])); c != 0 {
		return c, knownVersion(a) && knownVersion(b)
	}
	return bytes.Compare(versionOf(a), versionOf(b)), false
}

// The digits of known versions: 1 since MongoDB 4.0.7, 2 since 7.0.
const (
	version1 = "2B02"
	version2 = "2B04"
)

func knownVersion(data []byte) bool {
	v := string(versionOf(data))
	return v == version1 || v == version2
}

// PrecedesAlways reports whether event e, which came before f and has an equal head, does so in
// streams of every version. Version 1 orders events of equal heads by collection and document,
// version 2 by collection, operation and document.
func PrecedesAlways(e, f *Event) bool {
	a, aKnown := e.Position().subject()
	b, bKnown := f.Position().subject()
	if !aKnown || !bKnown || !bytes.Equal(a.collection, b.collection) {
		return true
	}
	return bytes.Compare(e.OpName(), f.OpName()) <= 0 && bytes.Compare(a.document, b.document) <= 0
}

// A subject is the part of a token after its head, as hexadecimal digits.
type subject struct {
	collection []byte // its UUID; empty if there is none
	document   []byte // the document key; empty for an event without a document
}

func (p Position) subject() (s subject, ok bool) {
	_, rest := p.head()
	return tokenSubject(tokenData(p.Token), rest)
}

// tokenSubject parses the part after the head of a token: in version 1 the collection's UUID and
// the document key, in version 2 the UUID or null, an identifier {operationType, documentKey or
// operationDescription}, and the fragment if there is one.
func tokenSubject(data, rest []byte) (s subject, ok bool) {
	if !knownVersion(data) || !bytes.HasSuffix(rest, []byte(keyEnd)) {
		return s, false
	}
	rest = rest[:len(rest)-len(keyEnd)]
	if bytes.HasPrefix(rest, []byte(keyUUID)) && len(rest) >= collectionDigits {
		s.collection, rest = rest[:collectionDigits], rest[collectionDigits:]
	}
	if string(versionOf(data)) == version1 {
		s.document = rest
		return s, true
	}
	s.document, _ = withoutFragment(bytes.TrimPrefix(rest, []byte(keyNull)))
	identifier, found := bytes.CutPrefix(s.document, []byte(keyIdentifier))
	if !found {
		return s, true
	}
	at := 0
	for at+2 < len(identifier) && string(identifier[at:at+2]) != keyClose {
		at += 2
	}
	op, last := identifier[:at], identifier[min(at+2, len(identifier)):]
	switch documentKey, found := bytes.CutPrefix(last, []byte(keyDocumentKey)); {
	case found:
		s.document = bytes.TrimSuffix(documentKey, []byte(keyClose))
	case string(last) == keyClose, string(op) == keyRename: // version 1 has nothing of it
		s.document = nil
	}
	return s, true
}

// withoutFragment cuts off the number of a fragment, a non-negative integer after an identifier,
// which ends with a zero byte.
func withoutFragment(digits []byte) (identifier []byte, fragment uint64) {
	if bytes.HasSuffix(digits, []byte(keyClose)) {
		return digits, 0
	}
	for _, size := range []int{2, 4} { // of the fragment 0, and of one up to 127
		identifier, number := digits[:max(0, len(digits)-size)], digits[max(0, len(digits)-size):]
		key := keyString{digits: number}
		if n, ok := key.number(); ok && len(key.digits) == 0 && bytes.HasSuffix(identifier, []byte(keyClose)) {
			return identifier, n + 1
		}
	}
	return digits, 0
}

// tokenHead parses the part after the cluster time: the version and, from version 1 on, the token
// type, the index in the transaction, and whether the event is an invalidate. Version 0 (MongoDB
// 4.0) has events only. rest is the remainder, nil if that is unreadable.
func tokenHead(data []byte) (h Head, rest []byte) {
	h = Head{Kind: KindEvent}
	if len(data) < timeDigits {
		return h, nil
	}
	key := keyString{digits: data[timeDigits:]}
	version, ok := key.number()
	if !ok || version == 0 {
		return h, nil
	}
	kind, ok := key.number()
	if !ok {
		return h, nil
	}
	index, ok := key.number()
	if !ok {
		return h, nil
	}
	if kind == 0 {
		h.Kind = KindProgress
	}
	h.TxnOpIndex = index
	c, ok := key.next()
	if !ok {
		return h, nil
	}
	h.FromInvalidate = c == keyTrue
	return h, key.digits
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
