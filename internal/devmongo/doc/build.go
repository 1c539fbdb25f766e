package doc

import (
	"encoding/binary"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Builder appends elements to a document. The zero Builder is not ready: New begins a document of its own,
// On continues one in a caller's buffer. Methods return the Builder, so that a document reads like one.
type Builder struct {
	buf  []byte
	open []int // where the lengths of the documents that are not closed yet stand
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

// Splice lets a function append to the buffer: what it adds must be whole elements.
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
