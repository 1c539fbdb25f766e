package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/access"
)

const (
	// smallChunk is the size in bytes up to which a text is copied to be sent in one piece.
	smallChunk = 16 << 10
	// mostUnasked bounds what is read of a client that sends more than its request.
	mostUnasked = 64 << 10
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
// its goroutine, with the handlers on its stack. It speaks HTTP/1.1 (RFC 9112), as most clients do;
// HTTP/2 has one connection for many streams.
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

// Write implements io.Writer. The text is one chunk, which is not empty. A small one is sent in one
// piece with what surrounds it; a large one is not copied.
func (d *detached) Write(text []byte) (int, error) {
	buffer, ok := d.chunks.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	defer d.chunks.Put(buffer)
	*buffer = append(strconv.AppendUint(append((*buffer)[:0], d.head...), uint64(len(text)), 16), "\r\n"...)
	d.head = nil
	parts := [][]byte{*buffer, text, []byte("\r\n")}
	if len(text) <= smallChunk {
		*buffer = append(append(*buffer, text...), "\r\n"...)
		parts = [][]byte{*buffer}
	}
	for _, part := range parts {
		if _, err := d.Conn.Write(part); err != nil {
			return 0, fmt.Errorf("write to the connection: %w", err)
		}
	}
	return len(text), nil
}

// Flush has nothing to do: every write is sent at once.
func (d *detached) Flush() error { return nil }

// end writes the end of the body.
func (d *detached) end() {
	_, _ = d.Conn.Write([]byte("0\r\n\r\n")) // the connection is closed anyway
}

// watch calls left when the client closes the connection, until it is closed here. What a client
// sends after its request is discarded: unread, it would hide that the client leaves, and have the
// connection reset when it is closed here. It does not notice the leaving of one that sends too
// much.
func (d *detached) watch(left func()) {
	var unasked [64]byte
	for sum := 0; sum < mostUnasked; {
		n, err := d.Read(unasked[:])
		if err != nil {
			left()
			return
		}
		sum += n
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

// streams are what the detached streams of Events share.
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
	if !c.until.IsZero() || !h.detached.begin() { // a stretch is short, and another one may follow it
		return false
	}
	out := h.detached.takeOver(w, r)
	if out == nil {
		h.detached.running.Done()
		return false
	}
	life.untie()
	c.out = out
	go h.serveDetached(ctx, life.cancel, c, out) // the rest holds the request
	return true
}

// serveDetached serves a client over its own connection. As in the HTTP server, a panic ends the
// stream and not the node.
func (h *Events) serveDetached(ctx context.Context, left func(), c *client, out *detached) {
	defer h.detached.running.Done()
	var watching sync.WaitGroup
	watching.Go(func() { out.watch(left) })
	defer func() {
		if what := recover(); what != nil {
			h.logger.Error("event stream panicked", "panic", what, "stack", string(debug.Stack()))
		}
		_ = out.Close()
		watching.Wait()
		left()
	}()
	c.serve(ctx)
	if !c.unfinished {
		out.end()
	}
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
