package listen

import (
	"net/http"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// Limits of a connection over HTTP: requests are small and have no bodies, and an idle or half-open
// connection is found out and closed.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeaders    = 32 << 10
	maxStreams    = 100 // of one connection of HTTP/2

	probeAfter   = 30 * time.Second // of silence, HTTP/2
	probeTimeout = 10 * time.Second
)

// limitRequests refuses requests with bodies, because nothing here takes one and the server would
// wait for a slow one's end, and bounds how long a client may take nothing of its answer. Handlers
// that stream move that bound with each writing.
func limitRequests(stall time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(stall)) // where it cannot be set, as in tests, there is no connection to hold
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(now.Add(bodyTimeout))
			w.Header().Set("Connection", "close")
			access.Refuse(w, http.StatusRequestEntityTooLarge, fault.Newf(fault.SessionBadRequest, "requests have no bodies here"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
