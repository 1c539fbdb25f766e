package doc

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Builder appends elements to a document. The zero Builder is not ready: New begins a document of
// its own, On continues one in a caller's buffer. Methods return the Builder, so that a document
// reads like one.
type Builder struct {
	buf  []byte
	open []int // the offsets of the lengths of open documents
}

// New begins a document.
func New() *Builder { return On(nil) }

// On begins a document at the end of buf.
func On(buf []byte) *Builder {
	b := &Builder{buf: buf}
	return b.begin()
}

func (b *Builder) begin() *Builder {
	b.open = append(b.open, len(b.buf))
	b.buf = append(b.buf, 0, 0, 0, 0)
	return b
}

// Open begins an embedded document that End closes.
func (b *Builder) Open(key string) *Builder {
	b.buf = bsoncore.AppendHeader(b.buf, bsoncore.TypeEmbeddedDocument, key)
	return b.begin()
}

// OpenArray begins an array that End closes; its elements are named with Index.
func (b *Builder) OpenArray(key string) *Builder {
	b.buf = bsoncore.AppendHeader(b.buf, bsoncore.TypeArray, key)
	return b.begin()
}

// End closes the innermost document or array.
func (b *Builder) End() *Builder {
	at := b.open[len(b.open)-1]
	b.open = b.open[:len(b.open)-1]
	b.buf = append(b.buf, 0)
	binary.LittleEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at))
	return b
}

// Document closes everything and returns the document.
func (b *Builder) Document() bsoncore.Document { return b.Bytes() }

// Bytes closes everything and returns the whole buffer.
func (b *Builder) Bytes() []byte {
	for len(b.open) > 0 {
		b.End()
	}
	return b.buf
}

// Int32 appends a 32-bit integer.
func (b *Builder) Int32(key string, v int32) *Builder {
	b.buf = bsoncore.AppendInt32Element(b.buf, key, v)
	return b
}

// Int64 appends a 64-bit integer.
func (b *Builder) Int64(key string, v int64) *Builder {
	b.buf = bsoncore.AppendInt64Element(b.buf, key, v)
	return b
}

// Number appends a count or a size as the server does: as a 32-bit integer where it fits.
func (b *Builder) Number(key string, v int64) *Builder {
	if v == int64(int32(v)) {
		return b.Int32(key, int32(v))
	}
	return b.Int64(key, v)
}

// Double appends a double.
func (b *Builder) Double(key string, v float64) *Builder {
	b.buf = bsoncore.AppendDoubleElement(b.buf, key, v)
	return b
}

// String appends a string.
func (b *Builder) String(key, v string) *Builder {
	b.buf = bsoncore.AppendStringElement(b.buf, key, v)
	return b
}

// Bool appends a bool.
func (b *Builder) Bool(key string, v bool) *Builder {
	b.buf = bsoncore.AppendBooleanElement(b.buf, key, v)
	return b
}

// Date appends a date in milliseconds since the epoch.
func (b *Builder) Date(key string, ms int64) *Builder {
	b.buf = bsoncore.AppendDateTimeElement(b.buf, key, ms)
	return b
}

// Timestamp appends a timestamp: seconds in the high half, the increment in the low half.
func (b *Builder) Timestamp(key string, ts uint64) *Builder {
	b.buf = bsoncore.AppendTimestampElement(b.buf, key, uint32(ts>>32), uint32(ts))
	return b
}

// Binary appends binary data.
func (b *Builder) Binary(key string, subtype byte, v []byte) *Builder {
	b.buf = bsoncore.AppendBinaryElement(b.buf, key, subtype, v)
	return b
}

// ObjectID appends an object id.
func (b *Builder) ObjectID(key string, v [12]byte) *Builder {
	b.buf = bsoncore.AppendObjectIDElement(b.buf, key, v)
	return b
}

// Null appends a null.
func (b *Builder) Null(key string) *Builder {
	b.buf = bsoncore.AppendNullElement(b.buf, key)
	return b
}

// Doc appends an embedded document.
func (b *Builder) Doc(key string, d []byte) *Builder {
	b.buf = bsoncore.AppendDocumentElement(b.buf, key, d)
	return b
}

// Value appends any value.
func (b *Builder) Value(key string, v bsoncore.Value) *Builder {
	b.buf = bsoncore.AppendValueElement(b.buf, key, v)
	return b
}

// Raw appends whole elements.
func (b *Builder) Raw(elements []byte) *Builder {
	b.buf = append(b.buf, elements...)
	return b
}

// Splice lets a function append to the buffer. It must append whole elements.
func (b *Builder) Splice(f func(buf []byte) []byte) *Builder {
	b.buf = f(b.buf)
	return b
}

// Strings appends an array of strings.
func (b *Builder) Strings(key string, list ...string) *Builder {
	b.OpenArray(key)
	for i, s := range list {
		b.String(Index(i), s)
	}
	return b.End()
}

// Docs appends an array of documents.
func (b *Builder) Docs(key string, list []bsoncore.Document) *Builder {
	b.OpenArray(key)
	for i, d := range list {
		b.Doc(Index(i), d)
	}
	return b.End()
}

// Index is the name of an array's element.
func Index(i int) string { return strconv.Itoa(i) }

// All yields the elements of a document, or of an array with "0", "1", … as names, in order.
func All(d []byte) iter.Seq2[string, bsoncore.Value] {
	return func(yield func(string, bsoncore.Value) bool) {
		for rest := body(d); len(rest) > 0; {
			key, v, next, ok := read(rest)
			if !ok || !yield(string(key), v) {
				return
			}
			rest = next
		}
	}
}

// Values yields the values of an array in order.
func Values(d []byte) iter.Seq[bsoncore.Value] {
	return func(yield func(bsoncore.Value) bool) {
		for rest := body(d); len(rest) > 0; {
			_, v, next, ok := read(rest)
			if !ok || !yield(v) {
				return
			}
			rest = next
		}
	}
}

// Field returns the first element of that name.
func Field(d []byte, name string) (bsoncore.Value, bool) {
	for rest := body(d); len(rest) > 0; {
		key, v, next, ok := read(rest)
		if !ok {
			break
		}
		if string(key) == name {
			return v, true
		}
		rest = next
	}
	return bsoncore.Value{}, false
}

// Path follows dotted names through embedded documents only: arrays are not entered.
func Path(d []byte, path string) (bsoncore.Value, bool) {
	for {
		head, tail, more := strings.Cut(path, ".")
		v, ok := Field(d, head)
		if !ok || !more {
			return v, ok
		}
		if v.Type != bsoncore.TypeEmbeddedDocument {
			return bsoncore.Value{}, false
		}
		d = v.Data
		path = tail
	}
}

// First returns the first element, whose name is a command's name or a stage's.
func First(d []byte) (string, bsoncore.Value, bool) {
	for name, v := range All(d) {
		return name, v, true
	}
	return "", bsoncore.Value{}, false
}

// Len counts the elements.
func Len(d []byte) int {
	n := 0
	for range Values(d) {
		n++
	}
	return n
}

// Empty reports whether the document has no elements.
func Empty(d []byte) bool { return len(d) <= 5 }

// Offset returns where the named element begins in the document, type byte included.
func Offset(d []byte, name string) (int, bool) {
	for rest := body(d); len(rest) > 0; {
		key, _, next, ok := read(rest)
		if !ok {
			break
		}
		if string(key) == name {
			return len(d) - 1 - len(rest), true
		}
		rest = next
	}
	return 0, false
}

// Int reads any number as int64; doubles are truncated.
func Int(v bsoncore.Value) (int64, bool) {
	switch v.Type {
	case bsoncore.TypeInt32:
		return int64(v.Int32()), true
	case bsoncore.TypeInt64:
		return v.Int64(), true
	case bsoncore.TypeDouble:
		f := v.Double()
		return int64(f), f == f && f > -1e18 && f < 1e18
	default:
		return 0, false
	}
}

// Truth reads a value as MongoDB reads an option: a bool, or a number that is not zero.
func Truth(v bsoncore.Value) bool {
	if v.Type == bsoncore.TypeBoolean {
		return v.Boolean()
	}
	if v.Type == bsoncore.TypeDouble {
		return v.Double() != 0
	}
	n, ok := Int(v)
	return ok && n != 0
}

// Clone copies a document out of the buffer it was read from.
func Clone(d []byte) bsoncore.Document { return append(bsoncore.Document(nil), d...) }

func body(d []byte) []byte {
	if len(d) < 5 {
		return nil
	}
	return d[4 : len(d)-1]
}

func read(rest []byte) (key []byte, v bsoncore.Value, next []byte, ok bool) {
	kind := bsoncore.Type(rest[0])
	key, next, ok = bsoncore.ReadKeyBytes(rest[1:])
	if !ok {
		return nil, v, nil, false
	}
	v, next, ok = bsoncore.ReadValue(next, kind)
	return key, v, next, ok
}

// Text prints a document the way the server prints BSON in its messages: { _id: 1, a: "x" }. Of a
// string of 160 bytes or more it shows the first 150.
func Text(d []byte) string { return text(d, "{ ", " }", "{}", true) }

// Compact prints a document the way the server prints what runs through a pipeline: {_id: 1, a:
// "x"}.
func Compact(d []byte) string { return text(d, "{", "}", "{}", true) }

// Element prints one named value like Text does: _id: 1.
func Element(name string, v bsoncore.Value) string { return name + ": " + valueText(v, Text, true) }

// Literal prints a value alone, as Text would.
func Literal(v bsoncore.Value) string { return valueText(v, Text, true) }

// How long a string must be for Text to cut it, and how much of it is left (BSONElement::toString).
const (
	longString = 160
	cutString  = 150
)

func text(d []byte, open, closing, empty string, names bool) string {
	if Empty(d) {
		return empty
	}
	nested := Text
	cut := true
	if open == "{" {
		nested = Compact
		cut = false
	}
	var parts []string
	for name, v := range All(d) {
		s := valueText(v, nested, cut)
		if names {
			s = name + ": " + s
		}
		parts = append(parts, s)
	}
	return open + strings.Join(parts, ", ") + closing
}

func valueText(v bsoncore.Value, nested func([]byte) string, cut bool) string {
	switch v.Type {
	case bsoncore.TypeInt32, bsoncore.TypeInt64:
		n, _ := Int(v)
		return strconv.FormatInt(n, 10)
	case bsoncore.TypeDouble:
		return doubleText(v.Double())
	case bsoncore.TypeString:
		s := v.StringValue()
		if cut && len(s) >= longString {
			return strings.TrimSuffix(strconv.Quote(s[:cutString]), `"`) + `..."`
		}
		return strconv.Quote(s)
	case bsoncore.TypeEmbeddedDocument:
		return nested(v.Data)
	case bsoncore.TypeArray:
		return text(v.Data, "[ ", " ]", "[]", false)
	case bsoncore.TypeObjectID:
		return fmt.Sprintf("ObjectId('%x')", v.Data)
	case bsoncore.TypeBoolean:
		return strconv.FormatBool(v.Boolean())
	case bsoncore.TypeDateTime:
		return fmt.Sprintf("new Date(%d)", v.DateTime())
	case bsoncore.TypeTimestamp:
		t, i := v.Timestamp()
		return fmt.Sprintf("Timestamp(%d, %d)", t, i)
	case bsoncore.TypeNull:
		return "null"
	case bsoncore.TypeMinKey:
		return "MinKey"
	case bsoncore.TypeMaxKey:
		return "MaxKey"
	case bsoncore.TypeBinary:
		subtype, data := v.Binary()
		if subtype == 4 && len(data) == 16 {
			return fmt.Sprintf(`UUID("%x-%x-%x-%x-%x")`, data[:4], data[4:6], data[6:8], data[8:10], data[10:])
		}
		return fmt.Sprintf("BinData(%d, %X)", subtype, data)
	default:
		return v.String()
	}
}

func doubleText(f float64) string {
	s := strconv.FormatFloat(f, 'g', 15, 64)
	if !strings.ContainsAny(s, ".eEIN") {
		s += ".0"
	}
	return s
}

// TypeName is the server's short name of a type, as its messages use it.
func TypeName(t bsoncore.Type) string {
	return cmp.Or(map[bsoncore.Type]string{
		bsoncore.TypeDouble: "double", bsoncore.TypeString: "string", bsoncore.TypeEmbeddedDocument: "object", bsoncore.TypeArray: "array",
		bsoncore.TypeBinary: "binData", bsoncore.TypeUndefined: "undefined", bsoncore.TypeObjectID: "objectId", bsoncore.TypeBoolean: "bool",
		bsoncore.TypeDateTime: "date", bsoncore.TypeNull: "null", bsoncore.TypeRegex: "regex", bsoncore.TypeInt32: "int",
		bsoncore.TypeTimestamp: "timestamp", bsoncore.TypeInt64: "long", bsoncore.TypeDecimal128: "decimal", bsoncore.TypeMinKey: "minKey",
		bsoncore.TypeMaxKey: "maxKey",
	}[t], "missing")
}
