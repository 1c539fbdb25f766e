package sse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxLine bounds a line: a MongoDB event has at most 16 MiB, and is several times larger as JSON.
const maxLine = 128 << 20

// A Message is one event of the stream.
type Message struct {
	// ID is the latest id in the stream up to this message.
	ID string
	// Event is the type, empty for an ordinary message.
	Event string
	Data  []byte
}

// WithID returns the data, a JSON object, with the message's id in it, for lines that have no other
// place for that. Data that begins with an id is returned as it is: nodes of earlier builds sent it
// there as well.
func (m Message) WithID() []byte {
	isObject := len(m.Data) > len("{}") && m.Data[0] == '{'
	if m.ID == "" || !isObject || bytes.HasPrefix(m.Data, []byte(`{"id":`)) {
		return m.Data
	}
	return append(fmt.Appendf(make([]byte, 0, len(m.Data)+len(m.ID)+len(`{"id":"",`)), `{"id":%q,`, m.ID), m.Data[1:]...)
}

// A Reader reads messages.
type Reader struct {
	// Progress is called by Next for each id that comes without a message. Optional.
	Progress func(id string)

	lines *bufio.Scanner
	id    string
}

// NewReader returns a Reader of a response body.
func NewReader(r io.Reader) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{lines: lines}
}

// LastID returns the latest id; a client sends it as Last-Event-ID when it reconnects.
func (r *Reader) LastID() string { return r.id }

// Next returns the next message that has data. It returns io.EOF at the end of the stream. As
// specified, an incomplete message is dropped.
func (r *Reader) Next() (Message, error) {
	var m Message
	id := r.id
	some := false
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if len(line) == 0 {
			moved := r.id != id
			r.id = id
			if some {
				m.ID = id
				return m, nil
			}
			if moved && r.Progress != nil {
				r.Progress(id)
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
			m.Data = append(m.Data, value...)
			some = true
		}
	}
	if err := r.lines.Err(); err != nil {
		return Message{}, fmt.Errorf("read event stream: %w", err)
	}
	return Message{}, io.EOF
}
