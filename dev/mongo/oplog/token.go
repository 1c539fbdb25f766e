package oplog

import (
	"bytes"
	"cmp"
	"encoding/hex"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Types of tokens.
const (
	tokenHighWatermark = 0
	TokenEvent         = 128
)

// NoFragment is the Fragment of a token that is not a fragment's.
const NoFragment = -1

// Token is a decoded resume token.
type Token struct {
	TS             uint64 // cluster time: seconds in the high half, the increment in the low half
	Version        int32  // 1 or 2
	Type           int32
	TxnOpIndex     int32
	FromInvalidate bool
	UUID           *[16]byte
	// Identifier is the document key (version 1) or the event identifier (version 2); nil when
	// missing.
	Identifier bsoncore.Document
	// Fragment counts the fragments of a split event from 0, or is NoFragment.
	Fragment int32
}

// HighWatermark is the high watermark of a cluster time: it sorts before every event of that time.
func HighWatermark(ts uint64, version int32) Token {
	return Token{TS: ts, Version: version, Type: tokenHighWatermark, Fragment: NoFragment}
}

// control is the operation that tokens of control events name.
const control = "control"

// controlToken is the token of an event of the server's own, which no stream shows.
func controlToken(ts uint64, version int32) Token {
	return Token{
		TS: ts, Version: version, Type: TokenEvent, Fragment: NoFragment,
		Identifier: doc.New().String("operationType", control).Document(),
	}
}

func (t Token) isControl() bool {
	v, _ := doc.Field(t.Identifier, "operationType")
	text, _ := v.StringValueOK()
	return text == control
}

// IsMark reports whether the token is a high watermark: no event's.
func (t Token) IsMark() bool {
	return t.Type == tokenHighWatermark && t.TxnOpIndex == 0 && !t.FromInvalidate && t.UUID == nil && t.Identifier == nil
}

// tokenBuilder makes tokens without allocating for each; it is not safe for concurrent use.
type tokenBuilder struct{ encoder doc.KeyEncoder }

// append appends the token as a BSON document.
func (b *tokenBuilder) append(dst []byte, t Token) []byte {
	e := &b.encoder
	e.Reset()
	e.Timestamp(t.TS)
	e.Int32(t.Version)
	e.Int32(t.Type)
	e.Int32(t.TxnOpIndex)
	e.Bool(t.FromInvalidate)
	switch {
	case t.UUID != nil:
		e.Binary(4, t.UUID[:])
	case t.Version >= 2:
		e.Null()
	}
	if t.Identifier != nil {
		// Every type that a stored document can have encodes; its nesting was bounded when it came
		// in.
		_ = e.Append(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: t.Identifier})
	}
	if t.Fragment != NoFragment {
		e.Int32(t.Fragment)
	}
	e.End()
	return appendDocument(dst, e.Bytes(), e.TypeBits())
}

// Document is Append with a Builder of its own.
func (t Token) Document() bsoncore.Document {
	var b tokenBuilder
	return b.append(nil, t)
}

// appendDocument writes {_data: <hex>, _typeBits: <bits>}.
func appendDocument(dst, key, typeBits []byte) []byte {
	const digits = "0123456789ABCDEF"
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendHeader(dst, bsoncore.TypeString, "_data")
	dst = bsoncore.AppendInt32(dst, int32(2*len(key)+1))
	for _, c := range key {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	dst = append(dst, 0)
	if typeBits != nil {
		dst = bsoncore.AppendBinaryElement(dst, "_typeBits", 0, typeBits)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

// DocumentKey is the _id's document in the identifier, nil where the event has none.
func (t Token) DocumentKey() bsoncore.Document {
	if t.Version < 2 {
		return t.Identifier
	}
	v, ok := doc.Field(t.Identifier, "documentKey")
	if !ok || v.Type != bsoncore.TypeEmbeddedDocument {
		return nil
	}
	return v.Data
}

// compareIdentifiers orders two tokens of one cluster time by the parts after fromInvalidate,
// without fragments.
func (t Token) compareIdentifiers(o Token) int { return compareDocuments(t.Identifier, o.Identifier) }

func compareDocuments(a, b bsoncore.Document) int {
	if a == nil || b == nil {
		return cmp.Compare(len(a), len(b))
	}
	return query.Compare(embedded(a), embedded(b))
}

func embedded(d bsoncore.Document) bsoncore.Value {
	return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: d}
}

// compareUUIDs orders two tokens by their collections; none sorts first.
func (t Token) compareUUIDs(o Token) int {
	switch {
	case t.UUID == nil && o.UUID == nil:
		return 0
	case t.UUID == nil:
		return -1
	case o.UUID == nil:
		return 1
	default:
		return bytes.Compare(t.UUID[:], o.UUID[:])
	}
}

func decodeHex(s string) ([]byte, bool) {
	key, err := hex.DecodeString(s)
	return key, err == nil
}

// ParseToken decodes a token as a client hands it back.
func ParseToken(d bsoncore.Document) (Token, error) {
	data, _ := doc.Field(d, "_data")
	text, ok := data.StringValueOK()
	if !ok {
		return Token{}, wire.Errorf(40647, "Bad resume token: _data of missing or of wrong type. Expected string, got %s", doc.Compact(d))
	}
	var typeBits []byte
	if v, present := doc.Field(d, "_typeBits"); present {
		subtype, bits, ok := v.BinaryOK()
		if !ok || subtype != 0 {
			return Token{}, wire.Errorf(40648, "Bad resume token: _typeBits of wrong type %s", doc.Compact(d))
		}
		typeBits = bits
	}
	key, ok := decodeHex(text)
	if !ok {
		return Token{}, wire.Errorf(wire.FailedToParse, "resume token string was not a valid hex string")
	}
	values, err := doc.DecodeKey(key, typeBits)
	if err != nil {
		return Token{}, err
	}
	p := &tokenParts{values: values}
	t := p.head()
	p.tail(&t)
	return t, p.err
}

// tokenParts takes the values of a token one by one; the first thing wrong stays in err.
type tokenParts struct {
	values []bsoncore.Value
	err    error
}

func (p *tokenParts) fail(code wire.Code, text string) {
	if p.err == nil {
		p.err = wire.Errorf(code, "%s", text)
	}
}

// next takes a value that must be there and have a type.
func (p *tokenParts) next(kind bsoncore.Type, missing wire.Code, missingText string, wrong wire.Code, wrongText string) bsoncore.Value {
	if len(p.values) == 0 {
		p.fail(missing, missingText)
		return bsoncore.Value{}
	}
	v := p.values[0]
	p.values = p.values[1:]
	if v.Type != kind {
		p.fail(wrong, wrongText)
		return bsoncore.Value{}
	}
	return v
}

func (p *tokenParts) int32(missing wire.Code, missingText string, wrong wire.Code, wrongText string) int32 {
	v, _ := p.next(bsoncore.TypeInt32, missing, missingText, wrong, wrongText).Int32OK()
	return v
}

// head reads what every token has.
func (p *tokenParts) head() Token {
	t := Token{Fragment: NoFragment}
	clock := p.next(bsoncore.TypeTimestamp, 40649, "invalid empty resume token", wire.FailedToParse, "resume token does not begin with a timestamp")
	seconds, increment, _ := clock.TimestampOK()
	t.TS = uint64(seconds)<<32 | uint64(increment)
	t.Version = p.int32(50796, "Resume Token does not contain version", 50854, "Invalid resume token: wrong type for version")
	if t.Version < 0 || t.Version > 2 {
		p.fail(50795, "Invalid Resume Token: only supports version 0, 1 and 2")
	}
	t.Type = TokenEvent // version 0 knows no other
	if t.Version >= 1 {
		t.Type = p.int32(51055, "Resume Token does not contain tokenType", 51056, "Resume Token tokenType is not an int.")
		if t.Type != tokenHighWatermark && t.Type != TokenEvent {
			p.fail(51057, "Token type "+doc.Index(int(t.Type))+" not recognized")
		}
	}
	t.TxnOpIndex = p.int32(50793, "Resume Token does not contain txnOpIndex", 50855, "Resume Token txnOpIndex is not an integer")
	if t.TxnOpIndex < 0 {
		p.fail(50794, "Invalid Resume Token: txnOpIndex should be non-negative")
	}
	if t.Version >= 1 {
		v := p.next(bsoncore.TypeBoolean, 50872, "Resume Token does not contain fromInvalidate", 50870, "Resume Token fromInvalidate is not a boolean.")
		t.FromInvalidate, _ = v.BooleanOK()
	}
	return t
}

// tail reads the UUID, the identifier and the fragment.
func (p *tokenParts) tail(t *Token) {
	if p.err != nil {
		return
	}
	if len(p.values) == 0 {
		if t.Version >= 2 {
			p.fail(6189500, "Expected UUID or null")
		}
		return
	}
	if v := p.take(); v.Type != bsoncore.TypeNull {
		subtype, data, ok := v.BinaryOK()
		if !ok || subtype != 4 || len(data) != 16 {
			p.fail(wire.InvalidUUID, "UUID must be a 16-byte binary field with UUID (4) subtype, found "+doc.TypeName(v.Type))
			return
		}
		t.UUID = (*[16]byte)(data)
	}
	if t.Type == tokenHighWatermark && len(p.values) > 0 {
		p.fail(6189504, "Invalid high water mark token")
		return
	}
	if len(p.values) == 0 {
		if t.Type == TokenEvent && t.Version >= 2 {
			p.fail(6189501, "Expected an eventIdentifier for an event resume token")
		}
		return
	}
	v := p.take()
	if v.Type != bsoncore.TypeEmbeddedDocument {
		p.fail(6189503, "Resume Token eventIdentifier is not an object")
		return
	}
	t.Identifier = v.Data
	p.fragment(t)
}

func (p *tokenParts) fragment(t *Token) {
	if len(p.values) > 0 && t.Version >= 2 {
		n, ok := p.take().Int32OK()
		if !ok || n < 0 {
			p.fail(7182501, "Resume token 'fragmentNum' must be a non-negative integer.")
			return
		}
		t.Fragment = n
	}
	if len(p.values) > 0 {
		p.fail(40646, "invalid oversized resume token")
	}
}

func (p *tokenParts) take() bsoncore.Value {
	v := p.values[0]
	p.values = p.values[1:]
	return v
}
