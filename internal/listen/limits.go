package listen

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// Limits of a connection over HTTP: requests are small and have no bodies, and idle or half-open
// connections are detected and closed.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeaders    = 32 << 10
	maxStreams    = 100 // of one connection of HTTP/2

	probeAfter   = 30 * time.Second // of silence, HTTP/2
	probeTimeout = 10 * time.Second
)

// limitRequests refuses requests with bodies, because no handler reads one and the server would
// wait for the end of a slow one. It also bounds how long a client may read nothing of its
// response, from the moment at which that is written, however long it took to prepare. Streaming
// handlers extend this bound with each write.
func limitRequests(stall time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timed := newTimedResponse(w, stall)
		defer timed.begin() // the server writes the rest
		if r.ContentLength == 0 {
			next.ServeHTTP(timed, r)
		} else {
			timed.refuseBody()
		}
	})
}

// A timedResponse sets the write deadline of a response when that begins, unless its handler has
// set one.
type timedResponse struct {
	http.ResponseWriter

	stall time.Duration
	timed atomic.Bool
}

func newTimedResponse(w http.ResponseWriter, stall time.Duration) *timedResponse {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of the connection's last request; if it cannot be set, as in tests, there is no connection
	return &timedResponse{ResponseWriter: w, stall: stall}
}

// refuseBody refuses a request that has a body.
func (t *timedResponse) refuseBody() {
	_ = http.NewResponseController(t.ResponseWriter).SetReadDeadline(time.Now().Add(bodyTimeout))
	t.Header().Set("Connection", "close")
	access.Refuse(t, http.StatusRequestEntityTooLarge, fault.Newf(fault.SessionBadRequest, "requests have no bodies here"))
}

// begin sets the deadline.
func (t *timedResponse) begin() {
	if t.timed.CompareAndSwap(false, true) {
		_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(t.stall))
	}
}

// WriteHeader implements http.ResponseWriter.
func (t *timedResponse) WriteHeader(status int) {
	t.begin()
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *timedResponse) Write(b []byte) (int, error) {
	t.begin()
	return t.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (t *timedResponse) FlushError() error {
	t.begin()
	return http.NewResponseController(t.ResponseWriter).Flush()
}

// SetWriteDeadline is for http.ResponseController.
func (t *timedResponse) SetWriteDeadline(deadline time.Time) error {
	t.timed.Store(true)
	return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(deadline)
}

// Hijack is for http.ResponseController. The deadlines are then those of whoever has the
// connection.
func (t *timedResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	t.timed.Store(true)
	return http.NewResponseController(t.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (t *timedResponse) Unwrap() http.ResponseWriter { return t.ResponseWriter }
