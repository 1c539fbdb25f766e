package devmongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// settle makes a read that wants what a majority has read that. Where the majority lags by itself the read sees the past; where it is
// held back for long there are no old versions, so the read waits until it has caught up.
func (r *request) settle(ctx context.Context, cmd command) error {
	concern, err := r.document("readConcern")
	if err != nil || concern == nil || cmd.writes {
		return err
	}
	if after, ok := doc.Field(concern, "afterClusterTime"); ok && r.db == "config" && r.oplog.Shards() > 0 {
		// Whoever is asked for what is after a time that it has not reached writes until it has.
		r.oplog.NoteOn(r.oplog.Shards(), doc.New().Int32("noop write for afterClusterTime read concern", 1).Document(), query.Timestamp(after))
	}
	level, _ := doc.Field(concern, "level")
	switch text, _ := level.StringValueOK(); text {
	case "majority", "linearizable", "snapshot":
		at := r.oplog.Applied()
		if text == "majority" && r.oplog.Lags() {
			after, _ := doc.Field(concern, "afterClusterTime")
			at = query.Timestamp(after)
		}
		if _, streams := r.changeStream(); !streams && !r.committed(ctx, at, r.limit) {
			return wire.Errorf(wire.MaxTimeMSExpired, "operation exceeded time limit")
		}
		if text == "majority" && r.oplog.Lags() {
			r.asOf = r.oplog.Committed()
		}
		return nil
	case "", "local", "available":
		return nil
	default:
		return wire.Errorf(wire.FailedToParse, "unrecognized readConcern level: %s", text)
	}
}

// committed waits until the cluster time is majority-committed, the limit is over (zero is none) or ctx ends.
func (r *request) committed(ctx context.Context, ts uint64, limit time.Time) bool {
	if r.oplog.Committed() < ts {
		r.oplog.Flush() // who waits has the journal written
	}
	for r.oplog.Committed() < ts {
		changed := r.oplog.Waiting(r.oplog.Seek(ts), false)
		if r.oplog.Committed() >= ts {
			break
		}
		if !await(ctx, changed, limit) {
			return false
		}
	}
	return true
}

// await waits for the channel; it reports false when the limit is over (zero is none) or ctx ends before.
func await(ctx context.Context, changed <-chan struct{}, limit time.Time) bool {
	var over <-chan time.Time
	if !limit.IsZero() {
		timer := time.NewTimer(time.Until(limit))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
		return true
	case <-over:
		return false
	case <-ctx.Done():
		return false
	}
}

// concern makes a write wait as its write concern says. before is the newest cluster time before the write.
func (r *request) concern(ctx context.Context, b *doc.Builder, before uint64) error {
	c, err := r.document("writeConcern")
	if err != nil {
		return err
	}
	w, given := doc.Field(c, "w")
	if n, number := doc.Int(w); number && n > 1 {
		b.Open("writeConcernError").Int32("code", 100).String("codeName", "CannotSatisfyWriteConcern")
		b.String("errmsg", "Not enough data-bearing nodes").End()
		return nil
	}
	text, _ := w.StringValueOK()
	majority := text == "majority" || !given && r.release.Since(oplog.R60)
	if ts := r.oplog.Applied(); !majority || r.standalone || ts == before && r.oplog.Committed() >= ts {
		return nil
	}
	limit := r.limit
	if v, ok := doc.Field(c, "wtimeout"); ok {
		if ms, _ := doc.Int(v); ms > 0 {
			limit = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
	}
	if !r.committed(ctx, r.oplog.Applied(), limit) {
		writeConcernError(b, c)
	}
	return nil
}

func writeConcernError(b *doc.Builder, concern bsoncore.Document) {
	b.Open("writeConcernError").Int32("code", int32(wire.WriteConcernFailed)).String("codeName", wire.WriteConcernFailed.Name())
	b.String("errmsg", "waiting for replication timed out").Open("errInfo").Bool("wtimeout", true)
	if concern != nil {
		b.Doc("writeConcern", concern)
	}
	b.End().End()
}
