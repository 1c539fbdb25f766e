package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

func body() bsoncore.Document {
	return doc.New().Int32("ping", 1).Open("a").OpenArray("b").String("0", "x").Document()
}

// sequence appends a section of kind 1.
func sequence(buf []byte, name string, docs ...bsoncore.Document) []byte {
	buf = append(buf, 1)
	at := len(buf)
	buf = append(append(append(buf, 0, 0, 0, 0), name...), 0)
	for _, d := range docs {
		buf = append(buf, d...)
	}
	binary.LittleEndian.PutUint32(buf[at:], uint32(len(buf)-at))
	return buf
}

func TestMessages(t *testing.T) {
	buf := append(wire.AppendMsg(nil, 7, 3, wire.MoreToCome), body()...)
	buf = sequence(buf, "documents", body(), body())
	m, err := wire.ReadMessage(bytes.NewReader(wire.Finish(buf)))
	if err != nil {
		t.Fatal(err)
	}
	docs, ok := m.Sequence("documents")
	if m.RequestID != 7 || m.Flags != wire.MoreToCome || !bytes.Equal(m.Body, body()) || !ok || len(docs) != 2 {
		t.Errorf("%+v", m)
	}
	if _, err := wire.ReadMessage(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := wire.ReadMessage(bytes.NewReader(buf[:30])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestChecksum(t *testing.T) {
	buf := append(wire.AppendMsg(nil, 7, 0, wire.ChecksumPresent), body()...)
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)+4))
	sum := crc32.Checksum(buf, crc32.MakeTable(crc32.Castagnoli))
	if _, err := wire.ReadMessage(bytes.NewReader(binary.LittleEndian.AppendUint32(buf, sum))); err != nil {
		t.Error(err)
	}
	if _, err := wire.ReadMessage(bytes.NewReader(binary.LittleEndian.AppendUint32(buf, sum+1))); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func TestMalformed(t *testing.T) {
	msg := func(sections ...byte) []byte {
		return wire.Finish(append(wire.AppendMsg(nil, 1, 0, 0)[:20], sections...))
	}
	whole := body()
	for name, buf := range map[string][]byte{
		"negative length":        {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0},
		"too long":               {0, 0, 0, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0},
		"unknown operation":      {16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
		"no body":                msg(),
		"unknown kind":           msg(append([]byte{9}, whole...)...),
		"two bodies":             msg(append(append([]byte{0}, whole...), append([]byte{0}, whole...)...)...),
		"two sequences":          msg(sequence(sequence(append([]byte{0}, whole...), "d", whole), "d", whole)...),
		"short sequence":         msg(append(append([]byte{0}, whole...), 1, 200, 0, 0, 0, 'd', 0)...),
		"length beyond the end":  msg(0, 200, 0, 0, 0, 0),
		"type that is none":      msg(0, 8, 0, 0, 0, 0x66, 'a', 0, 0),
		"string without its end": msg(0, 14, 0, 0, 0, 2, 'a', 0, 2, 0, 0, 0, 'x', 'y', 0),
		"bool that is three":     msg(0, 9, 0, 0, 0, 8, 'a', 0, 3, 0),
	} {
		if _, err := wire.ReadMessage(bytes.NewReader(buf)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDepth(t *testing.T) {
	d := doc.New().Document()
	for range 300 {
		d = doc.New().Doc("a", d).Document()
	}
	if err := wire.Validate(d); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add(wire.Finish(append(wire.AppendMsg(nil, 7, 3, 0), body()...)))
	f.Add(wire.Finish(sequence(append(wire.AppendMsg(nil, 7, 3, 0), body()...), "documents", body())))
	f.Fuzz(func(_ *testing.T, buf []byte) {
		m, err := wire.ReadMessage(bytes.NewReader(buf))
		if err != nil {
			return
		}
		walk(m.Body)
	})
}

// walk visits everything in a document, which must not panic.
func walk(d []byte) {
	for _, v := range doc.All(d) {
		_ = doc.Literal(v)
		if v.Type == bsoncore.TypeEmbeddedDocument || v.Type == bsoncore.TypeArray {
			walk(v.Data)
		}
	}
}
