package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/access"
)

// A response is what the events of a client are written to.
type response interface {
	io.Writer
	Flush() error
	// SetWriteDeadline sets when a write fails that blocks.
	SetWriteDeadline(at time.Time) error
}

// A served response is that of the HTTP server.
type served struct {
	http.ResponseWriter
	*http.ResponseController
}

// A detached response is written to a connection that the HTTP server has given up, so that nothing
// of the request stays in memory for as long as the stream waits: neither the server's buffers nor
// its goroutine, with the handlers on its stack. It is that of HTTP/1.1 (RFC 9112), which is most of
// them; HTTP/2 has one connection for many streams.
type detached struct {
	net.Conn

	head   []byte     // nil once it has been written
	chunks *sync.Pool // of buffers for what is written: a stream that waits has none
}

// takeOver takes the connection of a response from the HTTP server. It returns nil if that does not
// give it.
func (s *streams) takeOver(w http.ResponseWriter, r *http.Request) *detached {
	if r.Proto != "HTTP/1.1" {
		return nil
	}
	conn, _, err := http.NewResponseController(w).Hijack() // what the client has sent beyond its request stays unread
	if err != nil {
		return nil
	}
	return &detached{conn, head(w.Header()), &s.chunks}
}

// head returns what precedes the body of a response that ends its connection.
func head(header http.Header) []byte {
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	header.Set("Transfer-Encoding", "chunked")
	header.Set("Connection", "close")
	text := bytes.NewBufferString("HTTP/1.1 200 OK\r\n")
	_ = header.Write(text) // a buffer takes everything
	text.WriteString("\r\n")
	return text.Bytes()
}

// Write implements io.Writer. The text is one chunk, which is not empty.
func (d *detached) Write(text []byte) (int, error) {
	buffer, ok := d.chunks.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	chunk := fmt.Appendf(append((*buffer)[:0], d.head...), "%x\r\n", len(text))
	chunk = append(append(chunk, text...), "\r\n"...)
	d.head = nil
	_, err := d.Conn.Write(chunk)
	if cap(chunk) <= 2*maxWrite {
		*buffer = chunk
		d.chunks.Put(buffer)
	}
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// Flush has nothing to do: every write is sent at once.
func (d *detached) Flush() error { return nil }

// end writes the end of the body.
func (d *detached) end() {
	_, _ = d.Conn.Write([]byte("0\r\n\r\n")) // the connection is closed anyway
}

// watch calls left when the client closes the connection, until it is closed here. Like the HTTP
// server it does not see that of a client that sends more than its request.
func (d *detached) watch(left func()) {
	var more [1]byte
	if _, err := d.Read(more[:]); err != nil {
		left()
	}
}

// A lifetime ends the context of a stream: with the request, until the stream is detached.
type lifetime struct {
	cancel context.CancelFunc
	untie  func() bool // from the request
}

// lifetime returns a context for the stream of a request.
func (h *Events) lifetime(r *http.Request) (context.Context, lifetime) {
	if r.Proto != "HTTP/1.1" {
		return r.Context(), lifetime{func() {}, func() bool { return true }}
	}
	kept, release := access.Keep(r.Context(), h.cfg.Base)
	ctx, cancel := context.WithCancelCause(kept)
	untie := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	return ctx, lifetime{func() { cancel(nil); release() }, untie}
}

// Streams counts the detached streams of Events.
type streams struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	chunks  sync.Pool // of *[]byte
}

// begin counts a stream, unless they are closed.
func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Add(1)
	}
	return !s.closed
}

// detach serves a client over its own connection, after the request has returned. It returns false
// if that is not possible.
func (h *Events) detach(ctx context.Context, life lifetime, c *client, w http.ResponseWriter, r *http.Request) bool {
	if !h.detached.begin() {
		return false
	}
	out := h.detached.takeOver(w, r)
	if out == nil {
		h.detached.running.Done()
		return false
	}
	life.untie()
	c.out = out
	go func(left func()) {
		defer h.detached.running.Done()
		var watching sync.WaitGroup
		watching.Go(func() { out.watch(left) })
		c.serve(ctx)
		if !c.unfinished {
			out.end()
		}
		_ = out.Close()
		watching.Wait()
		left()
	}(life.cancel) // the rest holds the request
	return true
}

// Wait waits for the ends of the streams whose requests have returned, or for that of the context.
// Later ones are served within their requests.
func (h *Events) Wait(ctx context.Context) {
	h.detached.mu.Lock()
	h.detached.closed = true
	h.detached.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.detached.running.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
