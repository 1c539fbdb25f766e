package notice

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/input"
)

// StreamConfig configures a Stream.
type StreamConfig struct {
	// Heartbeat is the interval of comments on an idle connection. Defaults to 15 s.
	Heartbeat time.Duration
	// StallTimeout bounds how long a write may block. Defaults to 30 s.
	StallTimeout time.Duration
	// MaxClients bounds the connections. Defaults to 100.
	MaxClients int
	// Show returns the form of a notice for the client of the request's context; ok is false if the
	// client must not get it. Defaults to everything for every client.
	Show func(ctx context.Context, n Notice) (told Notice, ok bool)
}

// A Stream serves a board as server-sent events (WHATWG HTML, section 9.2): each notice is one
// event whose type is its channel, first the kept notices, then new ones. An event of type missed
// reports the number of dropped notices.
//
// The header or parameter Last-Event-ID resumes after the notice with that id. An id from before a
// restart begins with the oldest notice, because numbers restart with the process. The parameter
// channel (repeated, or separated by commas) selects channels; without it all come but Audit.
type Stream struct {
	cfg     StreamConfig
	board   *Board
	process string
	clients atomic.Int64
}

// NewStream returns the handler.
func NewStream(cfg StreamConfig, board *Board) *Stream {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 30*time.Second)
	cfg.MaxClients = cmp.Or(cfg.MaxClients, 100)
	return &Stream{cfg: cfg, board: board, process: rand.Text()[:12]}
}

// ServeHTTP implements http.Handler.
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch err := input.Reason(r.Context(), nil); {
	case fault.Of(err) == fault.SessionBadRequest:
		refuse(w, http.StatusBadRequest, err)
		return
	case err != nil:
		refuseLater(w, r, err)
		return
	}
	after, channels, err := s.parse(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	defer s.clients.Add(-1)
	if s.clients.Add(1) > int64(s.cfg.MaxClients) {
		refuseLater(w, r, fault.Newf(fault.SessionTooMany, "%d clients follow the notices", s.cfg.MaxClients))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store, no-transform") // a proxy that compresses would hold events back
	w.Header().Set("X-Accel-Buffering", "no")
	s.follow(r.Context(), w, after, channels)
}

// parse returns the number of the notice to resume after, and the requested channels.
func (s *Stream) parse(r *http.Request) (after uint64, channels []Channel, err error) {
	query, err := input.Query(r, "channel", input.LastEventID)
	if err != nil {
		return 0, nil, err
	}
	for c := range strings.SplitSeq(strings.Join(query["channel"], ","), ",") {
		switch {
		case c == "" && len(query["channel"]) == 0:
		case !slices.ContainsFunc(Table(), func(r Rule) bool { return r.Channel == Channel(c) }):
			return 0, nil, fault.Newf(fault.SessionBadRequest, "parameter channel: there is no channel %.40q", c)
		default:
			channels = append(channels, Channel(c))
		}
	}
	last, err := input.Resumes(r, query)
	if err != nil {
		return 0, nil, err
	}
	if last == "" {
		return 0, channels, nil
	}
	process, number, _ := strings.Cut(last, "-")
	after, err = strconv.ParseUint(number, 10, 64)
	if err != nil || len(process) != len(s.process) {
		return 0, nil, fault.Newf(fault.SessionBadPosition, "Last-Event-ID %.40q is not the id of a notice", last)
	}
	if process != s.process {
		return 0, channels, nil
	}
	return after, channels, nil
}

// follow writes the notices of channels, of all but Audit if there are none, until the client
// disconnects or stalls.
func (s *Stream) follow(ctx context.Context, w http.ResponseWriter, after uint64, channels []Channel) {
	out := http.NewResponseController(w)
	buffer := fmt.Appendf(nil, "retry: %d\n: connected\n\n", (500*time.Millisecond + mathrand.N(time.Second)).Milliseconds()) // not all clients of a node at once
	for {
		begun := time.Now()
		if err := out.SetWriteDeadline(begun.Add(s.cfg.StallTimeout)); err != nil {
			return
		}
		if _, err := w.Write(buffer); err != nil { //nolint:gosec // JSON as server-sent events, which no browser renders
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		wait, cancel := context.WithDeadline(ctx, begun.Add(s.cfg.Heartbeat)) // the deadline outlives a write that took long
		notices, missed, err := s.board.Follow(wait, after)
		cancel()
		switch buffer = buffer[:0]; {
		case ctx.Err() != nil:
			return
		case err != nil:
			buffer = append(buffer, ": heartbeat\n\n"...)
			continue
		}
		if missed > 0 {
			buffer = fmt.Appendf(buffer, "event: missed\ndata: {\"missed\":%d}\n\n", missed)
		}
		for _, n := range notices {
			after = n.ID
			isAsked := slices.Contains(channels, n.Channel) || channels == nil && n.Channel != Audit
			if !isAsked {
				continue
			}
			if s.cfg.Show != nil {
				told, ok := s.cfg.Show(ctx, n)
				if !ok {
					continue
				}
				n = told
			}
			text, err := json.Marshal(n)
			if err != nil { // a field cannot be encoded: send the notice without its fields
				n.Fields = map[string]any{"error": err.Error()}
				text, _ = json.Marshal(n) //nolint:errchkjson // text and numbers only
			}
			// the id comes last: clients that take it at once do not resume after half a notice
			buffer = fmt.Appendf(buffer, "event: %s\ndata: %s\nid: %s-%d\n\n", n.Channel, text, s.process, n.ID)
		}
	}
}

// refuse responds with the fault as JSON.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(described(err)) // the client may have gone
}

// refuseLater refuses a request that may be repeated later. Because an EventSource gives up on any
// status but 200, it gets an empty stream that says when to reconnect.
func refuseLater(w http.ResponseWriter, r *http.Request, err error) {
	after := 5*time.Second + mathrand.N(10*time.Second)
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())+1))
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	text, _ := json.Marshal(described(err))                                                          //nolint:errchkjson // strings only
	_, _ = fmt.Fprintf(w, "retry: %d\nevent: unavailable\ndata: %s\n\n", after.Milliseconds(), text) // the client may have gone
}

// A description is a fault as clients see it.
type description struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
}

func described(err error) (d description) {
	d.Code, d.Message, d.Remedy = fault.Public(err)
	return d
}
