package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// MaxMessage is the longest message a client may send, in bytes (the server's maxMessageSizeBytes).
const MaxMessage = 48_000_000

// Operation codes.
const (
	OpReply int32 = 1
	OpQuery int32 = 2004
	opMsg   int32 = 2013
)

// Flags of OP_MSG.
const (
	ChecksumPresent uint32 = 1 << 0
	MoreToCome      uint32 = 1 << 1
	ExhaustAllowed  uint32 = 1 << 16
)

const (
	headerSize   = 16
	requiredBits = 0xffff // unknown flags below bit 16 must be refused
	kindBody     = 0
	kindSequence = 1
)

// ErrMalformed marks every message that is not well formed.
var ErrMalformed = errors.New("malformed message")

// Sequence is a named list of documents beside the body (OP_MSG section kind 1).
type Sequence struct {
	Name string
	Docs []bsoncore.Document
}

// Message is one request. Its documents are slices of one buffer that belongs to the message.
type Message struct {
	RequestID int32
	OpCode    int32
	Flags     uint32
	// Collection is the full collection name of an OP_QUERY, such as "admin.$cmd".
	Collection string
	Body       bsoncore.Document
	sequences  []Sequence
}

// ReadMessage reads the next message. It returns io.EOF when the stream ends between messages, and
// an error that wraps ErrMalformed for bytes that are no message.
func ReadMessage(r io.Reader) (*Message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := int32(binary.LittleEndian.Uint32(header[0:]))
	if length < headerSize || length > MaxMessage {
		return nil, fmt.Errorf("%w: length %d", ErrMalformed, length)
	}
	buf, err := readAll(r, int(length)-headerSize)
	if err != nil {
		return nil, err
	}
	return parse(header, buf)
}

// readAll reads n bytes, but takes memory only as they arrive, so that a lying length costs
// nothing.
func readAll(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	if n <= step {
		buf := make([]byte, n)
		_, err := io.ReadFull(r, buf)
		return buf, noEOF(err)
	}
	var buf bytes.Buffer
	buf.Grow(step)
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return nil, noEOF(err)
	}
	return buf.Bytes(), nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parse(header [headerSize]byte, buf []byte) (*Message, error) {
	m := &Message{
		RequestID: int32(binary.LittleEndian.Uint32(header[4:])),
		OpCode:    int32(binary.LittleEndian.Uint32(header[12:])),
	}
	switch m.OpCode {
	case opMsg:
		return m, m.parseMsg(header, buf)
	case OpQuery:
		return m, m.parseQuery(buf)
	default:
		return nil, fmt.Errorf("%w: operation code %d", ErrMalformed, m.OpCode)
	}
}

func (m *Message) parseMsg(header [headerSize]byte, buf []byte) error {
	if len(buf) < 4 {
		return fmt.Errorf("%w: no flags", ErrMalformed)
	}
	m.Flags = binary.LittleEndian.Uint32(buf)
	if unknown := m.Flags & requiredBits &^ (ChecksumPresent | MoreToCome); unknown != 0 {
		return fmt.Errorf("%w: unknown required flags %#x", ErrMalformed, unknown)
	}
	rest := buf[4:]
	if m.Flags&ChecksumPresent != 0 {
		if len(rest) < 4 {
			return fmt.Errorf("%w: no checksum", ErrMalformed)
		}
		end := len(rest) - 4
		if err := verify(header, buf[:len(buf)-4], binary.LittleEndian.Uint32(rest[end:])); err != nil {
			return err
		}
		rest = rest[:end]
	}
	for len(rest) > 0 {
		var err error
		if rest, err = m.parseSection(rest); err != nil {
			return err
		}
	}
	if m.Body == nil {
		return fmt.Errorf("%w: no body", ErrMalformed)
	}
	return nil
}

func verify(header [headerSize]byte, buf []byte, want uint32) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	if got := crc32.Update(crc32.Checksum(header[:], table), table, buf); got != want {
		return fmt.Errorf("%w: checksum %08x, want %08x", ErrMalformed, got, want)
	}
	return nil
}

func (m *Message) parseSection(buf []byte) ([]byte, error) {
	kind, rest := buf[0], buf[1:]
	switch kind {
	case kindBody:
		if m.Body != nil {
			return nil, fmt.Errorf("%w: two bodies", ErrMalformed)
		}
		var err error
		m.Body, rest, err = readDocument(rest)
		return rest, err
	case kindSequence:
		return m.parseSequence(rest)
	default:
		return nil, fmt.Errorf("%w: section kind %d", ErrMalformed, kind)
	}
}

func (m *Message) parseSequence(buf []byte) ([]byte, error) {
	if len(buf) < 4 {
		return nil, fmt.Errorf("%w: short sequence", ErrMalformed)
	}
	size := int64(binary.LittleEndian.Uint32(buf))
	if size < 5 || size > int64(len(buf)) {
		return nil, fmt.Errorf("%w: sequence of %d bytes", ErrMalformed, size)
	}
	section, rest := buf[4:size], buf[size:]
	name, section, ok := readCString(section)
	if !ok {
		return nil, fmt.Errorf("%w: sequence without a name", ErrMalformed)
	}
	if _, twice := m.Sequence(name); twice {
		return nil, fmt.Errorf("%w: two sequences %q", ErrMalformed, name)
	}
	seq := Sequence{Name: name}
	for len(section) > 0 {
		doc, next, err := readDocument(section)
		if err != nil {
			return nil, err
		}
		seq.Docs = append(seq.Docs, doc)
		section = next
	}
	m.sequences = append(m.sequences, seq)
	return rest, nil
}

// parseQuery reads flags, collection, skip, return count and the query; field selectors are
// ignored.
func (m *Message) parseQuery(buf []byte) error {
	if len(buf) < 4 {
		return fmt.Errorf("%w: short query", ErrMalformed)
	}
	name, rest, ok := readCString(buf[4:])
	if !ok || len(rest) < 8 {
		return fmt.Errorf("%w: short query", ErrMalformed)
	}
	m.Collection = name
	var err error
	m.Body, _, err = readDocument(rest[8:])
	return err
}

// Sequence returns the documents of the named sequence.
func (m *Message) Sequence(name string) ([]bsoncore.Document, bool) {
	for _, s := range m.sequences {
		if s.Name == name {
			return s.Docs, true
		}
	}
	return nil, false
}

func readCString(buf []byte) (string, []byte, bool) {
	text, rest, found := bytes.Cut(buf, []byte{0})
	return string(text), rest, found
}

func readDocument(buf []byte) (bsoncore.Document, []byte, error) {
	n, err := documentLength(buf)
	if err != nil {
		return nil, nil, err
	}
	doc := bsoncore.Document(buf[:n:n])
	if err := Validate(doc); err != nil {
		return nil, nil, err
	}
	return doc, buf[n:], nil
}

// AppendMsg begins an OP_MSG reply: the header, the flags and the kind byte of its body. The caller
// appends one document and calls Finish.
func AppendMsg(dst []byte, requestID, responseTo int32, flags uint32) []byte {
	dst = appendHeader(dst, requestID, responseTo, opMsg)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	return append(dst, kindBody)
}

// AppendReply begins an OP_REPLY with one document, the answer to an OP_QUERY.
func AppendReply(dst []byte, requestID, responseTo int32) []byte {
	const awaitCapable = 8
	dst = appendHeader(dst, requestID, responseTo, OpReply)
	dst = binary.LittleEndian.AppendUint32(dst, awaitCapable)
	dst = binary.LittleEndian.AppendUint64(dst, 0) // cursor
	dst = binary.LittleEndian.AppendUint32(dst, 0) // starting from
	return binary.LittleEndian.AppendUint32(dst, 1)
}

// Finish writes the length of the message that makes up the whole of buf.
func Finish(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)))
	return buf
}

func appendHeader(dst []byte, requestID, responseTo, op int32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(requestID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(responseTo))
	return binary.LittleEndian.AppendUint32(dst, uint32(op))
}

// maxBatch is how many bytes of documents go into one reply; a first document that is larger goes
// alone.
const maxBatch = 16 << 20

// Batch collects the documents of one reply as elements of an array.
type Batch struct {
	buf   []byte
	start int
	n     int
	limit int
}

// NewBatch continues buf, which ends inside of an array without elements. limit is the greatest
// number of documents; a negative one is no limit.
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
