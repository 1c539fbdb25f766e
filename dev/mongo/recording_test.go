package devmongo_test

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// line is one recorded message (recordings/README.md).
type line struct {
	Conn       int             `json:"conn"`
	From       string          `json:"from"`
	Op         string          `json:"op"`
	RequestID  int32           `json:"request_id"`
	ResponseTo int32           `json:"response_to"`
	Flags      uint32          `json:"flags"`
	Body       json.RawMessage `json:"body"`
	Raw        string          `json:"raw"`
}

// leftOut reports whether the recording has no content for the message, because it was too large.
func (l *line) leftOut() bool { return len(l.Body) > 0 && l.Body[0] == '"' }

// message is a recorded message: the body, and its document sequences.
type message struct {
	body      bsoncore.Document
	sequences []wire.Sequence
}

func (l *line) message(t *testing.T) message {
	t.Helper()
	if l.Op == "OP_MSG" && l.Raw != "" {
		raw, err := base64.StdEncoding.DecodeString(l.Raw)
		if err != nil {
			t.Fatal(err)
		}
		return split(t, raw[20:])
	}
	var body bson.Raw
	if err := bson.UnmarshalExtJSON(l.Body, true, &body); err != nil {
		t.Fatal(err)
	}
	return message{body: bsoncore.Document(body)}
}

// split takes the sections of an OP_MSG apart.
func split(t *testing.T, sections []byte) message {
	t.Helper()
	var m message
	for len(sections) > 0 {
		kind, size := sections[0], binary.LittleEndian.Uint32(sections[1:])
		section := sections[1 : 1+size]
		sections = sections[1+size:]
		if kind == 0 {
			m.body = section
			continue
		}
		name, rest, ok := bsoncore.ReadKey(section[4:])
		if !ok {
			t.Fatal("a recorded sequence has no name")
		}
		s := wire.Sequence{Name: name}
		for len(rest) > 0 {
			n := binary.LittleEndian.Uint32(rest)
			s.Docs = append(s.Docs, rest[:n])
			rest = rest[n:]
		}
		m.sequences = append(m.sequences, s)
	}
	return m
}

// encode makes the message a client's OP_MSG.
func (m message) encode(id int32, flags uint32) []byte {
	buf := append(wire.AppendMsg(nil, id, 0, flags), m.body...)
	for _, s := range m.sequences {
		buf = append(buf, 1)
		at := len(buf)
		buf = append(append(append(buf, 0, 0, 0, 0), s.Name...), 0)
		for _, d := range s.Docs {
			buf = append(buf, d...)
		}
		binary.LittleEndian.PutUint32(buf[at:], uint32(len(buf)-at))
	}
	return wire.Finish(buf)
}

// encodeQuery makes the body a client's OP_QUERY on admin.$cmd.
func encodeQuery(id int32, body bsoncore.Document) []byte {
	buf := make([]byte, 16, 64+len(body))
	binary.LittleEndian.PutUint32(buf[4:], uint32(id))
	binary.LittleEndian.PutUint32(buf[12:], uint32(wire.OpQuery))
	buf = append(append(buf, 0, 0, 0, 0), "admin.$cmd\x00"...)
	buf = append(buf, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
	return wire.Finish(append(buf, body...))
}

func readRecording(t *testing.T, name string) []*line {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "4.4", name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var lines []*line
	scanner := bufio.NewScanner(z)
	scanner.Buffer(nil, 8<<20)
	for scanner.Scan() {
		l := &line{}
		if err := json.Unmarshal(scanner.Bytes(), l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// command is the name of a request's command.
func (m message) command() string {
	name, _, _ := doc.First(m.body)
	return name
}
