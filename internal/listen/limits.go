package listen

import (
	"net/http"
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
// response. Streaming handlers extend this bound with each write.
func limitRequests(stall time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(stall)) // if it cannot be set, as in tests, there is no connection
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(now.Add(bodyTimeout))
			w.Header().Set("Connection", "close")
			access.Refuse(w, http.StatusRequestEntityTooLarge, fault.Newf(fault.SessionBadRequest, "requests have no bodies here"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
