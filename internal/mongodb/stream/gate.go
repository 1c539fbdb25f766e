package stream

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongostream/streamer/internal/mongodb"
)

// A gate enforces the least time between two openings of one stream, including the driver's own
// inside TryNext, and records the stream's cursors.
type gate struct {
	least  time.Duration
	last   time.Time
	opened int
	shards bool                // the cluster is sharded: note the cluster's time
	told   mongodb.ClusterTime // from the last reply
	ids    []int64             // of the cursors that were opened and are not known to be closed

	holding holding
	absent  time.Duration // how long no request waited before the last reply
}

type gateKey struct{}

// noteCommand is called by the driver before it sends a command. It delays an aggregate that opens
// a stream too soon after the last one, because the driver resumes without any limit while the
// aggregates succeed.
func noteCommand(ctx context.Context, e *event.CommandStartedEvent) {
	g, ok := ctx.Value(gateKey{}).(*gate)
	switch {
	case !ok:
		return
	case e.CommandName != "aggregate":
		g.holding.ask(time.Now())
		return
	}
	g.holding = holding{}
	if wait := time.Until(g.last.Add(g.least)); !g.last.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	g.last = time.Now()
	g.opened++
}

// noteReply is called by the driver after the reply to a command. It notes the cluster's time and
// the cursors that were opened.
func noteReply(ctx context.Context, e *event.CommandSucceededEvent) {
	g, ok := ctx.Value(gateKey{}).(*gate)
	if !ok {
		return
	}
	if g.shards {
		g.told = mongodb.ClusterTimeOf(e.Reply)
	}
	if e.CommandName != "aggregate" {
		g.absent = g.holding.answer(time.Now())
		return
	}
	if id, ok := e.Reply.Lookup("cursor", "id").AsInt64OK(); ok && id != 0 {
		g.ids = append(g.ids, id)
	}
}

// sweep closes the cursors that the stream has abandoned. The driver cannot close a cursor whose
// connection broke or whose wait was canceled, and the server keeps such a cursor for ten minutes.
func (st *stream) sweep(ctx context.Context) {
	var current int64
	if st.cursor != nil {
		current = st.cursor.ID()
	}
	var left bson.A
	for _, id := range st.gate.ids {
		if id != current {
			left = append(left, id)
		}
	}
	st.gate.ids = slices.DeleteFunc(st.gate.ids, func(id int64) bool { return id != current })
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongodb.CloseTimeout)
	defer cancel()
	database := cmp.Or(st.source.can.database, "admin")
	// Most are closed already. The server closes the others after its own timeout.
	_ = st.at.client.Driver().Database(database).RunCommand(ctx, bson.D{{Key: "killCursors", Value: "$cmd.aggregate"}, {Key: "cursors", Value: left}}).Err()
}
