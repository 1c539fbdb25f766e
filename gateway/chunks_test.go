package gateway

import (
	"bytes"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A recorder is a connection that keeps what is written to it, and whose peer sends without end.
type recorder struct {
	net.Conn

	written []string
	last    *byte // the first byte of the last text with more than its end
	read    int
}

func (r *recorder) Write(text []byte) (int, error) {
	r.written = append(r.written, string(text))
	if len(text) > 2 {
		r.last = &text[0]
	}
	return len(text), nil
}

func (r *recorder) Read(into []byte) (int, error) {
	r.read += len(into)
	return len(into), nil
}

// A small text is sent in one piece with the head, a large one as it is: a write that blocks does
// not hold it twice.
func TestOnlySmallChunksAreCopied(t *testing.T) {
	conn := &recorder{}
	d := &detached{conn, head(http.Header{}), new(sync.Pool)}
	small, large := bytes.Repeat([]byte("s"), smallChunk), bytes.Repeat([]byte("l"), smallChunk+1)
	for _, text := range [][]byte{small, large} {
		if n, err := d.Write(text); n != len(text) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if len(conn.written) != 4 || !strings.HasPrefix(conn.written[0], "HTTP/1.1 200 OK") || !strings.HasSuffix(conn.written[0], "s\r\n") {
		t.Fatalf("%.100q", conn.written)
	}
	if conn.written[1] != "4001\r\n" || conn.last != &large[0] || conn.written[3] != "\r\n" {
		t.Errorf("%q and %q, and a copy", conn.written[1], conn.written[3])
	}
}

// Of a client that sends and sends no more is read than the bound, and it has not left.
func TestWhatAClientSendsUnaskedIsBounded(t *testing.T) {
	conn := &recorder{}
	d := &detached{Conn: conn}
	d.watch(func() { t.Error("the client has left") })
	if conn.read < mostUnasked || conn.read > mostUnasked+1000 {
		t.Errorf("%d bytes are read", conn.read)
	}
}
