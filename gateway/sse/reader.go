package sse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxLine bounds a line: an event of MongoDB is at most 16 MiB, as JSON a few times that.
const maxLine = 128 << 20

// A Message is one event of the stream.
type Message struct {
	// ID is the last id that the stream has told, with this message or before it.
	ID string
	// Event is the type, empty for an ordinary message.
	Event string
	Data  []byte
}

// A Reader reads messages.
type Reader struct {
	lines *bufio.Scanner
	id    string
}

// NewReader makes a Reader over the body of an answer.
func NewReader(r io.Reader) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{lines: lines}
}

// LastID returns the last id that the stream has told; a client that reconnects sends it as Last-Event-ID.
func (r *Reader) LastID() string { return r.id }

// Next returns the next message that has data. At the end of the stream it returns io.EOF; a message that is cut off is dropped,
// as the specification says.
func (r *Reader) Next() (Message, error) {
	var m Message
	id := r.id
	some := false
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if len(line) == 0 {
			r.id = id
			if some {
				m.ID = id
				return m, nil
			}
			m = Message{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			id = string(value)
		case "event":
			m.Event = string(value)
		case "data":
			if some {
				m.Data = append(m.Data, '\n')
			}
			m.Data, some = append(m.Data, value...), true
		}
	}
	if err := r.lines.Err(); err != nil {
		return Message{}, fmt.Errorf("read event stream: %w", err)
	}
	return Message{}, io.EOF
}
