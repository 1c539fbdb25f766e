package oplog

import (
	"bytes"
	"cmp"
	"encoding/hex"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
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
	// Identifier is the document key (version 1) or the event identifier (version 2); nil when missing.
	Identifier bsoncore.Document
	// Fragment counts the fragments of a split event from 0, or is NoFragment.
	Fragment int32
}

// HighWatermark is the high watermark of a cluster time: it sorts before every event of that time.
func HighWatermark(ts uint64, version int32) Token {
	return Token{TS: ts, Version: version, Type: tokenHighWatermark, Fragment: NoFragment}
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
		// Every type that a stored document can have encodes; its nesting was bounded when it came in.
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

// compareIdentifiers orders two tokens of one cluster time by what comes after fromInvalidate, fragments
// aside.
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
