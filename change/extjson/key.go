package extjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
)

// MaxKey bounds the length of a key in bytes.
const MaxKey = 512

// keySum is the length of the end of a key that is cut: a tilde and a SHA-256 in base64.
const keySum = 1 + 43

// maxKeyDepth bounds the recursion; MongoDB stores at most 250 levels.
const maxKeyDepth = 256

// AppendKey appends the key of a document: its _id as text, the same for _ids that MongoDB
// considers equal and different for others. It is the relaxed Extended JSON of a value that
// represents all equal ones, with these differences:
//
//   - A number has no type: 7 is NumberInt(7), NumberLong(7), 7.0 and NumberDecimal("7.0"). A
//     Decimal128 that is no int64 and no double keeps its type, without trailing zeros. A symbol is
//     a string.
//   - A byte that is not UTF-8 is the escape \udcXX, half of a surrogate pair, which no UTF-8 is.
//     All control characters are escaped.
//   - A name that begins with $ begins with $$, so that no document looks like another type; $ref,
//     $id and $db stay.
//   - Options of a regular expression keep their order. Invalid BSON is
//     {"$bson":{"type":"…","base64":"…"}}.
//   - What would be longer than MaxKey is cut, and ends in a tilde and the SHA-256 of the canonical
//     form, in base64 for URLs.
func AppendKey(b []byte, id change.Value) []byte {
	switch id.Type { // most documents' _ids, whose keys are short
	case change.TypeInt32, change.TypeInt64:
		n, _ := id.Int64()
		return strconv.AppendInt(b, n, 10)
	case change.TypeObjectID:
		return appendObjectID(b, id.Data)
	}
	begun := len(b)
	b = appendKey(b, id, 1)
	if len(b)-begun <= MaxKey {
		return b
	}
	sum := sha256.Sum256(change.AppendCanonical(nil, id))
	cut := begun + MaxKey - keySum
	for !utf8.RuneStart(b[cut]) {
		cut--
	}
	return base64.RawURLEncoding.AppendEncode(append(b[:cut], '~'), sum[:])
}

// AppendKeyText appends the key of a document (AppendKey) as a JSON string.
func AppendKeyText(b []byte, id change.Value) []byte {
	switch id.Type {
	case change.TypeInt32, change.TypeInt64:
		n, _ := id.Int64()
		return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
	case change.TypeObjectID:
		return append(hex.AppendEncode(append(b, `"{\"$oid\":\"`...), id.Data), `\"}"`...)
	case change.TypeString:
		if text := textOf(id); len(text)+2 <= MaxKey && plain(text) == len(text) && bytes.IndexByte(text, 0x7F) < 0 {
			return append(append(append(b, `"\"`...), text...), `\""`...)
		}
	}
	begun := len(b)
	b = AppendKey(b, id)
	end := len(b)
	b = appendString(b, b[begun:end])
	return append(b[:begun], b[end:]...)
}

// AppendKeyed appends a document as Append does, with its key (AppendKeyText), unless that is
// empty, as the field "key" in front of the others. The document must have fields.
func (o Options) AppendKeyed(b, key, doc []byte) ([]byte, error) {
	return o.appendKeyed(b, key, doc, 4)
}

// AppendKeyedEvent appends a change event as AppendKeyed does, without its token. The event must
// begin with its token.
func (o Options) AppendKeyedEvent(b, key []byte, e *change.Event) ([]byte, error) {
	raw := e.Raw() // only its bytes are read: they may be others than those that e was parsed from
	return o.appendKeyed(b, key, raw, tokenAt+int(binary.LittleEndian.Uint32(raw[tokenAt:])))
}

// tokenAt is where the token is in an event that begins with it.
const tokenAt = 4 + len("\x03_id\x00")

// BeginsWithToken reports whether an event begins with its token. All events of MongoDB do.
func BeginsWithToken(e *change.Event) bool {
	raw := e.Raw()
	return len(raw) > tokenAt && string(raw[4:tokenAt]) == "\x03_id\x00"
}

// appendKeyed is AppendKeyed with the fields from an offset on.
func (o Options) appendKeyed(b, key, doc []byte, from int) ([]byte, error) {
	if !isWhole(doc) {
		return b, fmt.Errorf("convert document to JSON: %w", errMalformed)
	}
	if len(key) == 0 {
		return o.whole(b, doc, from)
	}
	begun := len(b)
	b = append(append(b, `{"key":`...), key...)
	at := len(b)
	b, err := o.whole(b, doc, from)
	if err != nil {
		return b[:begun], err
	}
	b[at] = ',' // instead of the brace
	return b, nil
}

func appendKey(b []byte, v change.Value, depth int) []byte {
	if n, is := v.Number(); is {
		return appendKeyNumber(b, n)
	}
	switch v.Type {
	case change.TypeString, change.TypeSymbol:
		return appendExact(b, textOf(v))
	case change.TypeDocument, change.TypeArray, change.TypeCodeScope:
		return appendKeyNested(b, v, depth)
	case change.TypeRegex:
		pattern, options, _ := bytes.Cut(v.Data[:len(v.Data)-1], []byte{0})
		b = appendExact(append(b, `{"$regularExpression":{"pattern":`...), pattern)
		return append(appendExact(append(b, `,"options":`...), options), `}}`...)
	case change.TypeJavaScript:
		return append(appendExact(append(b, `{"$code":`...), textOf(v)), '}')
	case change.TypeDBPointer:
		id := len(v.Data) - 12
		b = appendExact(append(b, `{"$dbPointer":{"$ref":`...), v.Data[4:id-1])
		return append(appendObjectID(append(b, `,"$id":`...), v.Data[id:]), `}}`...)
	case change.TypeBinary:
		if data := v.Data[5:]; v.Data[4] == 2 && (len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) != uint64(len(data)-4)) {
			return appendRaw(b, v)
		}
	}
	text, err := Options{}.value(b, v, 1)
	if err != nil {
		return appendRaw(b, v)
	}
	return text
}

func appendKeyNumber(b []byte, n change.Number) []byte {
	switch n.Type {
	case change.TypeInt64:
		return strconv.AppendInt(b, n.Int, 10)
	case change.TypeDouble:
		return Options{}.appendDouble(b, math.Float64bits(n.Double))
	}
	b = append(b, `{"$numberDecimal":"`...)
	digits := []byte(n.Digits)
	if digits[0] == '-' {
		b = append(b, '-')
		digits = digits[1:]
	}
	return append(appendScientific(b, digits, n.Exponent), `"}`...)
}

// appendKeyNested appends a value that contains values.
func appendKeyNested(b []byte, v change.Value, depth int) []byte {
	begun := len(b)
	closing := "}"
	doc := v.Data
	switch v.Type {
	case change.TypeArray:
		b = append(b, '[')
		closing = "]"
	case change.TypeCodeScope:
		code, scope, err := v.CodeScope()
		if err != nil {
			return appendRaw(b, v)
		}
		b = append(appendExact(append(b, `{"$code":`...), code), `,"$scope":{`...)
		closing = "}}"
		doc = scope
	default:
		b = append(b, '{')
	}
	if depth > maxKeyDepth {
		return appendRaw(b[:begun], v)
	}
	for at := 4; ; {
		name, inner, next, err := change.Element(doc, at)
		if err != nil {
			return appendRaw(b[:begun], v)
		}
		if name == nil {
			return append(b, closing...)
		}
		if at > 4 {
			b = append(b, ',')
		}
		if v.Type != change.TypeArray {
			b = append(appendExact(b, escapedName(name)), ':')
		}
		b = appendKey(b, inner, depth+1)
		at = next
	}
}

// escapedName returns the name of a field as it is in a key.
func escapedName(name []byte) []byte {
	switch string(name) {
	case "$ref", "$id", "$db":
		return name
	}
	if len(name) > 0 && name[0] == '$' {
		return append([]byte{'$'}, name...)
	}
	return name
}

// appendRaw appends a value that is not valid BSON by its bytes.
func appendRaw(b []byte, v change.Value) []byte {
	b = hex.AppendEncode(append(b, `{"$bson":{"type":"`...), []byte{v.Type})
	return append(base64.StdEncoding.AppendEncode(append(b, `","base64":"`...), v.Data), `"}}`...)
}
