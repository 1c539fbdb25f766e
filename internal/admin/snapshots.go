package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/notice"
)

// A SnapshotResult is the result of an operation on the snapshots of a subscriber.
type SnapshotResult struct {
	Subscriber string             `json:"subscriber"`
	Operation  delivery.Operation `json:"operation"`
	// Subscriptions is with how many it was done.
	Subscriptions int `json:"subscriptions"`
}

// SnapshotOperator is what ServeSnapshots asks.
type SnapshotOperator interface {
	// OperateSnapshot does something with the snapshots of a subscriber; see streamer.Node.
	OperateSnapshot(subscriber string, do delivery.Operation, subscription string, ns change.Namespace) (done int, connected bool)
}

// ServeSnapshots answers POST requests with the parameters subscriber, operation (begin, pause,
// resume, cancel), subscription and namespace (db.coll): 200 with a SnapshotResult, 404 if the
// subscriber has no session at the node or none of its subscriptions is meant, and 403 to
// identities that may not read everything. The request is in the audit log before anything is done.
func ServeSnapshots(node SnapshotOperator, board *notice.Board) http.Handler {
	known := []delivery.Operation{delivery.BeginSnapshot, delivery.PauseSnapshot, delivery.ResumeSnapshot, delivery.CancelSnapshot}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.From(r.Context())
		q := r.URL.Query()
		refuse := func(status int, code fault.Code, format string, args ...any) {
			access.Refuse(w, status, fault.Newf(code, format, args...))
		}
		do := delivery.Operation(cmp.Or(q.Get("operation"), string(delivery.BeginSnapshot)))
		db, coll, dotted := strings.Cut(q.Get("namespace"), ".")
		switch {
		case !i.Operates():
			refuse(http.StatusForbidden, fault.AccessForbidden, "an operator's snapshot needs the right to every namespace")
			return
		case q.Get("subscriber") == "":
			refuse(http.StatusBadRequest, fault.CommandBadArgument, "parameter subscriber: required")
			return
		case !slices.Contains(known, do):
			refuse(http.StatusBadRequest, fault.CommandBadArgument, "parameter operation: begin, pause, resume or cancel")
			return
		case db != "" && (!dotted || coll == ""):
			refuse(http.StatusBadRequest, fault.CommandBadArgument, "parameter namespace: it must be like db.coll")
			return
		}
		by := "somebody"
		if i != nil && i.Name != "" {
			by = i.Name
		}
		var arguments []string
		for _, name := range []string{"subscriber", "subscription", "namespace"} {
			if v := q.Get(name); v != "" {
				arguments = append(arguments, name+"="+v[:min(len(v), maxRecorded)])
			}
		}
		board.Post(OperatedNotice(by, "snapshot "+string(do), arguments))
		result := SnapshotResult{Subscriber: q.Get("subscriber"), Operation: do}
		var connected bool
		if result.Subscriptions, connected = node.OperateSnapshot(result.Subscriber, do, q.Get("subscription"), change.Namespace{DB: db, Coll: coll}); !connected {
			refuse(http.StatusNotFound, fault.CommandBadArgument, "subscriber %q is not connected to this node", result.Subscriber)
			return
		}
		if result.Subscriptions == 0 {
			what := "no subscription of subscriber %q is meant: nothing has begun"
			if do != delivery.BeginSnapshot {
				what = "no subscription of subscriber %q has such a snapshot under way: nothing was done"
			}
			refuse(http.StatusNotFound, fault.CommandBadArgument, what, result.Subscriber)
			return
		}
		answer(w, http.StatusOK, result)
	})
}

// maxRecorded is how much of an argument is recorded, in bytes.
const maxRecorded = 600
