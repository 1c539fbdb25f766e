package wire

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxBatch is how many bytes of documents go into one reply; a first document that is larger goes alone.
const maxBatch = 16 << 20

// Batch collects the documents of one reply as elements of an array.
type Batch struct {
	buf   []byte
	start int
	n     int
	limit int
}

// NewBatch continues buf, which ends inside of an array without elements. limit is the greatest number of
// documents; a negative one is no limit.
func NewBatch(buf []byte, limit int) *Batch { return &Batch{buf: buf, start: len(buf), limit: limit} }

// Add appends a document, or reports false when it no longer fits.
func (b *Batch) Add(d []byte) bool {
	if b.Full() || b.n > 0 && len(b.buf)-b.start+len(d) > maxBatch {
		return false
	}
	b.buf = append(b.buf, byte(bsoncore.TypeEmbeddedDocument))
	b.buf = strconv.AppendInt(b.buf, int64(b.n), 10)
	b.buf = append(append(b.buf, 0), d...)
	b.n++
	return true
}

// Full reports whether the batch has its number of documents.
func (b *Batch) Full() bool { return b.limit >= 0 && b.n >= b.limit }

// Len is the number of documents.
func (b *Batch) Len() int { return b.n }

// Bytes is the buffer with the documents.
func (b *Batch) Bytes() []byte { return b.buf }
