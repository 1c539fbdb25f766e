package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
)

// A SinkList is the sinks of a cluster as one node serves them.
type SinkList struct {
	Node  string        `json:"node"`
	Sinks []sink.Status `json:"sinks"`
	// Pending says that other nodes do later what was asked of this one, and why; empty otherwise.
	Pending string `json:"pending,omitempty"`
}

// The operations on sinks.
const (
	PauseSink  = "pause"
	ResumeSink = "resume"
)

// recordTimeout bounds the wait until an operator's action is in the cluster's audit log.
const recordTimeout = 5 * time.Second

// ServeSinks answers GET requests for /v1/sinks with a SinkList, and POST requests for
// /v1/sinks/{name}/{do}, where do is pause or resume, with 202: the request is in the audit log,
// from which the nodes of the cluster take it, also those that start later; recorded waits for
// that. Where it cannot be written yet, the answer says so: this node does so at once, and the
// others when it is written. Identities that may not read everything get 403.
func ServeSinks(node string, sinks func() []*sink.Sink, board *notice.Board, recorded func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.From(r.Context())
		if !i.Operates() {
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "sinks need the right to every namespace"))
			return
		}
		list := SinkList{Node: node, Sinks: []sink.Status{}}
		for _, s := range sinks() {
			list.Sinks = append(list.Sinks, s.Status())
		}
		status := http.StatusOK
		if r.Method == http.MethodPost {
			name, do := r.PathValue("name"), r.PathValue("do")
			known := slices.ContainsFunc(list.Sinks, func(s sink.Status) bool { return s.Name == name })
			if !known || do != PauseSink && do != ResumeSink {
				access.Refuse(w, http.StatusNotFound, fault.Newf(fault.CommandBadArgument, "there is no sink %q, or nothing like %q", name, do))
				return
			}
			by := node
			if i != nil && i.Name != "" {
				by = i.Name
			}
			n := OperatedNotice(by, "sinks "+do, []string{name})
			n.Fields["sink"] = name
			n.Fields["do"] = do
			board.Post(n)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout) // as all that is recorded
			err := recorded(ctx)
			cancel()
			if err != nil {
				list.Pending = fmt.Sprintf("this node does so now, the others when the audit log can be written, which was not so within %s", recordTimeout)
			}
			status = http.StatusAccepted
		}
		answer(w, status, list)
	})
}
