package member

import (
	"context"
	"net/http"
	"sync"

	"github.com/mongostream/streamer/fault"
)

// Guard serves only while the node may hand anything to anybody, and lets nothing through afterwards.
func (m *Member) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := m.events.bind(r.Context()) // before it is asked, or a detachment in between would pass it by
		defer cancel()
		if !m.Trusted() {
			http.Error(w, string(fault.NodeDetached)+": the node is not a member of its cluster now", http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(guardedWriter{w, m.Trusted}, r.WithContext(ctx))
		if !m.Trusted() {
			panic(http.ErrAbortHandler) // what is still in the connection's buffer stays there
		}
	})
}

// A guardedWriter writes nothing once the node may not.
type guardedWriter struct {
	http.ResponseWriter

	trusted func() bool
}

// Write implements io.Writer.
func (w guardedWriter) Write(b []byte) (int, error) {
	if !w.trusted() {
		return 0, fault.Newf(fault.NodeDetached, "the node is not a member of its cluster now")
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is for http.ResponseController.
func (w guardedWriter) FlushError() error {
	if !w.trusted() {
		return fault.Newf(fault.NodeDetached, "the node is not a member of its cluster now")
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// An ending ends what is bound to it at the time.
type ending struct {
	mu struct {
		sync.Mutex
		all map[*context.CancelCauseFunc]struct{}
	}
}

// bind returns a context that ends with ctx, with the next end, or with cancel.
func (e *ending) bind(ctx context.Context) (bound context.Context, cancel func()) {
	bound, end := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.all == nil {
		e.mu.all = make(map[*context.CancelCauseFunc]struct{})
	}
	e.mu.all[&end] = struct{}{}
	return bound, func() {
		end(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.mu.all, &end)
	}
}

// end ends what is bound.
func (e *ending) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for end := range e.mu.all {
		(*end)(cause)
	}
	clear(e.mu.all)
}
