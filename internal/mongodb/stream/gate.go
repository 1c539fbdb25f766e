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

// A gate keeps openings of one stream apart, also those that the driver makes by itself inside
// TryNext, and knows its cursors.
type gate struct {
	least  time.Duration
	last   time.Time
	opened int
	shards bool                // there are shards, whose time is to be noted
	told   mongodb.ClusterTime // as the last reply has it
	ids    []int64             // of cursors that were opened and, as far as is known, not closed
}

type gateKey struct{}

// noteAggregate is called by the driver before it sends a command. It holds back an aggregate that
// opens a stream too soon after the last one: the driver's own resuming knows no limit while the
// aggregates succeed.
func noteAggregate(ctx context.Context, e *event.CommandStartedEvent) {
	g, ok := ctx.Value(gateKey{}).(*gate)
	if !ok || e.CommandName != "aggregate" {
		return
	}
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

// noteReply is called by the driver when a command was answered. It notes the cluster's time, and
// the cursors that are opened and closed.
func noteReply(ctx context.Context, e *event.CommandSucceededEvent) {
	g, ok := ctx.Value(gateKey{}).(*gate)
	if !ok {
		return
	}
	if g.shards {
		g.told = mongodb.ClusterTimeOf(e.Reply)
	}
	if e.CommandName != "aggregate" {
		return
	}
	if id, ok := e.Reply.Lookup("cursor", "id").AsInt64OK(); ok && id != 0 {
		g.ids = append(g.ids, id)
	}
}

// sweep closes the cursors that the stream has left behind: where a connection broke, or a wait was
// given up, the driver could not close its cursor, and the server keeps it for ten minutes.
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
	// Most are closed already. What cannot be closed now the server closes in its time.
	_ = st.at.client.Driver().Database(database).RunCommand(ctx, bson.D{{Key: "killCursors", Value: "$cmd.aggregate"}, {Key: "cursors", Value: left}}).Err()
}
