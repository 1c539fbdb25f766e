package extjson

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
)

// maxDepth bounds the nesting. MongoDB stores up to 100 levels, and a change event adds a few.
const maxDepth = 512

var (
	errMalformed = errors.New("malformed BSON")
	errDepth     = fmt.Errorf("nested deeper than %d levels", maxDepth)
)

// Options control the output. The zero Options mean relaxed Extended JSON.
type Options struct {
	// Canonical preserves the type of every number and date.
	Canonical bool
	// LongText writes 64-bit integers beyond ±2^53, which many readers of JSON round, as strings of
	// digits. Canonical output does so anyway.
	LongText bool
}

// Append appends a BSON document to b as relaxed Extended JSON. If the BSON is malformed or too
// deeply nested it returns an error and the original b.
func Append(b, doc []byte) ([]byte, error) { return Options{}.Append(b, doc) }

// Append is Append with options.
func (o Options) Append(b, doc []byte) ([]byte, error) {
	if !isWhole(doc) {
		return b, fmt.Errorf("convert document to JSON: %w", errMalformed)
	}
	return o.whole(b, doc, 4)
}

// whole appends the fields of a document from an offset on, 4 for all, as Append does.
func (o Options) whole(b, doc []byte, from int) ([]byte, error) {
	text, err := o.nested(b, doc, from, false, 1)
	if err != nil {
		return b, fmt.Errorf("convert document to JSON: %w", err)
	}
	return text, nil
}

// AppendValue appends a value of a valid document.
func (o Options) AppendValue(b []byte, v change.Value) ([]byte, error) {
	text, err := o.value(b, v, 1)
	if err != nil {
		return b, fmt.Errorf("convert value to JSON: %w", err)
	}
	return text, nil
}

// AppendExact appends text as a JSON string that differs for every text, also where it is not
// UTF-8. It has no control characters and no code points that are no characters, but as escapes.
func AppendExact(b, text []byte) []byte { return appendExact(b, text) }

// AppendString appends text as a JSON string.
func AppendString(b, text []byte) []byte { return appendString(b, text) }

// isWhole reports whether a document has its declared length. Its elements are checked when they
// are read.
func isWhole(doc []byte) bool {
	return len(doc) >= 5 && uint64(binary.LittleEndian.Uint32(doc)) == uint64(len(doc))
}

// nested appends the elements of a document from an offset on, or of an array, whose element names
// are ignored.
func (o Options) nested(b, doc []byte, from int, array bool, depth int) ([]byte, error) {
	if depth > maxDepth {
		return b, errDepth
	}
	opening, closing := byte('{'), byte('}')
	if array {
		opening, closing = '[', ']'
	}
	b = append(b, opening)
	for at := from; ; {
		name, v, next := plainElement(doc, at)
		isPlain := next > 0
		var err error
		if !isPlain {
			if name, v, next, err = change.Element(doc, at); err != nil {
				return b, err //nolint:wrapcheck // Append wraps it
			}
			if name == nil {
				return append(b, closing), nil
			}
		}
		if at > from {
			b = append(b, ',')
		}
		switch {
		case array:
		case isPlain:
			b = append(append(append(b, '"'), name...), '"', ':')
		default:
			b = append(appendString(b, name), ':')
		}
		if b, err = o.value(b, v, depth); err != nil {
			return b, err
		}
		at = next
	}
}

// plainElement is change.Element for most elements: their names need no escapes, and the size of
// their values depends on nothing but their type, or on the length of a text or a document. next is
// 0 for another element, for the end, and where anything may be malformed.
func plainElement(doc []byte, at int) (name []byte, v change.Value, next int) {
	if at+1 >= len(doc) || int(doc[at]) >= len(sizes) {
		return nil, v, 0
	}
	kind := doc[at]
	begins := at + 1
	at = begins + plain(doc[begins:]) // a terminator needs an escape
	size := int(sizes[kind])
	if at >= len(doc)-8 || doc[at] != 0 || size == 0 {
		return nil, v, 0
	}
	name = doc[begins:at]
	at++
	if size == unsized {
		n := binary.LittleEndian.Uint32(doc[at:])
		if kind == change.TypeString {
			n += 4
		}
		if n < 5 || uint64(n) >= uint64(len(doc)-at) || doc[at+int(n)-1] != 0 {
			return nil, v, 0
		}
		size = int(n)
	}
	if next = at + size; next >= len(doc) {
		return nil, v, 0
	}
	return name, change.Value{Type: kind, Data: doc[at:next:next]}, next
}

// unsized is the size of values that begin with their length.
const unsized = 0xFF

// sizes are the sizes of values by their types, 0 for rare ones.
//
//nolint:gochecknoglobals // a constant table
var sizes = [...]uint8{
	change.TypeDouble: 8, change.TypeString: unsized, change.TypeDocument: unsized, change.TypeArray: unsized, change.TypeObjectID: 12,
	change.TypeBool: 1, change.TypeDateTime: 8, change.TypeInt32: 4, change.TypeTimestamp: 8, change.TypeInt64: 8, change.TypeDecimal128: 16,
}

// value appends a value in a document at the depth.
func (o Options) value(b []byte, v change.Value, depth int) ([]byte, error) {
	switch v.Type {
	case change.TypeString:
		return appendString(b, textOf(v)), nil
	case change.TypeDocument, change.TypeArray:
		return o.nested(b, v.Data, 4, v.Type == change.TypeArray, depth+1)
	case change.TypeInt32:
		return o.appendInt(b, "numberInt", int64(int32(binary.LittleEndian.Uint32(v.Data)))), nil
	case change.TypeInt64:
		return o.appendInt(b, "numberLong", int64(binary.LittleEndian.Uint64(v.Data))), nil
	case change.TypeDouble:
		return o.appendDouble(b, binary.LittleEndian.Uint64(v.Data)), nil
	case change.TypeDecimal128:
		b = append(b, `{"$numberDecimal":"`...)
		b = appendDecimal(b, binary.LittleEndian.Uint64(v.Data[8:]), binary.LittleEndian.Uint64(v.Data))
		return append(b, `"}`...), nil
	case change.TypeBool:
		if v.Data[0] > 1 {
			return b, fmt.Errorf("%w: a boolean of %d", errMalformed, v.Data[0])
		}
		return strconv.AppendBool(b, v.Data[0] == 1), nil
	case change.TypeDateTime:
		return o.appendDate(b, int64(binary.LittleEndian.Uint64(v.Data))), nil
	case change.TypeObjectID:
		return appendObjectID(b, v.Data), nil
	case change.TypeTimestamp:
		b = strconv.AppendUint(append(b, `{"$timestamp":{"t":`...), uint64(binary.LittleEndian.Uint32(v.Data[4:])), 10)
		b = strconv.AppendUint(append(b, `,"i":`...), uint64(binary.LittleEndian.Uint32(v.Data)), 10)
		return append(b, `}}`...), nil
	case change.TypeNull:
		return append(b, `null`...), nil
	case change.TypeBinary:
		return appendBinary(b, v.Data)
	case change.TypeRegex:
		pattern, options, _ := bytes.Cut(v.Data[:len(v.Data)-1], []byte{0})
		b = appendString(append(b, `{"$regularExpression":{"pattern":`...), pattern)
		b = appendOptions(append(b, `,"options":`...), options)
		return append(b, `}}`...), nil
	case change.TypeJavaScript:
		return append(appendString(append(b, `{"$code":`...), textOf(v)), '}'), nil
	case change.TypeSymbol:
		return append(appendString(append(b, `{"$symbol":`...), textOf(v)), '}'), nil
	case change.TypeCodeScope:
		return o.appendCodeScope(b, v, depth)
	case change.TypeDBPointer:
		id := len(v.Data) - 12
		b = appendString(append(b, `{"$dbPointer":{"$ref":`...), v.Data[4:id-1])
		b = appendObjectID(append(b, `,"$id":`...), v.Data[id:])
		return append(b, `}}`...), nil
	case change.TypeUndefined:
		return append(b, `{"$undefined":true}`...), nil
	case change.TypeMinKey:
		return append(b, `{"$minKey":1}`...), nil
	case change.TypeMaxKey:
		return append(b, `{"$maxKey":1}`...), nil
	}
	return b, fmt.Errorf("%w: a value of type %#x", errMalformed, v.Type)
}

// textOf returns the text of a string, code or symbol.
func textOf(v change.Value) []byte { return v.Data[4 : len(v.Data)-1] }

// appendInt appends an integer, with the wrapper in canonical form.
func (o Options) appendInt(b []byte, wrapper string, n int64) []byte {
	switch {
	case o.Canonical:
	case o.LongText && (n > maxExact || n < -maxExact):
		return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
	default:
		return strconv.AppendInt(b, n, 10)
	}
	b = append(append(append(b, `{"$`...), wrapper...), `":"`...)
	return append(strconv.AppendInt(b, n, 10), `"}`...)
}

// maxExact is the largest integer up to which a double has all.
const maxExact = 1 << 53

// endOfYears is the first millisecond of the year 10000.
const endOfYears = 253402300800000

// appendDate appends a date in milliseconds since 1970.
func (o Options) appendDate(b []byte, ms int64) []byte {
	if o.Canonical || ms < 0 || ms >= endOfYears {
		b = strconv.AppendInt(append(b, `{"$date":{"$numberLong":"`...), ms, 10)
		return append(b, `"}}`...)
	}
	b = time.UnixMilli(ms).UTC().AppendFormat(append(b, `{"$date":"`...), time.RFC3339)
	if f := ms % 1000; f != 0 {
		b = append(b[:len(b)-1], '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10), 'Z')
	}
	return append(b, `"}`...)
}

func appendObjectID(b, id []byte) []byte {
	return append(hex.AppendEncode(append(b, `{"$oid":"`...), id), `"}`...)
}

// appendBinary appends binary data: length, subtype, data. Old data, of subtype 2, repeats its
// length.
func appendBinary(b, bin []byte) ([]byte, error) {
	subtype, data := bin[4], bin[5:]
	if subtype == 2 && len(data) >= 4 {
		if inner := uint64(binary.LittleEndian.Uint32(data)); inner != uint64(len(data)-4) {
			return b, fmt.Errorf("%w: old binary data of two lengths", errMalformed)
		}
		data = data[4:]
	}
	b = base64.StdEncoding.AppendEncode(append(b, `{"$binary":{"base64":"`...), data)
	b = hex.AppendEncode(append(b, `","subType":"`...), []byte{subtype})
	return append(b, `"}}`...), nil
}

// appendCodeScope appends code with scope.
func (o Options) appendCodeScope(b []byte, v change.Value, depth int) ([]byte, error) {
	code, scope, err := v.CodeScope()
	if err != nil {
		return b, err //nolint:wrapcheck // Append wraps it
	}
	b = appendString(append(b, `{"$code":`...), code)
	b, err = o.nested(append(b, `,"$scope":`...), scope, 4, false, depth+1)
	return append(b, '}'), err
}
