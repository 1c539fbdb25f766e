package node

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// settle makes a read that wants what a majority has read that. Where the majority lags by itself the read sees the past; where it is
// held back for long there are no old versions, so the read waits until it has caught up.
func (r *Request) settle(ctx context.Context, cmd Command) error {
	concern, err := r.Document("readConcern")
	if err != nil || concern == nil || cmd.Writes {
		return err
	}
	if after, ok := doc.Field(concern, "afterClusterTime"); ok && r.DB == "config" && r.Oplog.Shards() > 0 {
		// Whoever is asked for what is after a time that it has not reached writes until it has.
		r.Oplog.NoteOn(r.Oplog.Shards(), doc.New().Int32("noop write for afterClusterTime read concern", 1).Document(), query.Timestamp(after))
	}
	level, _ := doc.Field(concern, "level")
	switch text, _ := level.StringValueOK(); text {
	case "majority", "linearizable", "snapshot":
		at := r.Oplog.Applied()
		if text == "majority" && r.Oplog.Lags() {
			after, _ := doc.Field(concern, "afterClusterTime")
			at = query.Timestamp(after)
		}
		if _, streams := r.ChangeStream(); !streams && !r.committed(ctx, at, r.Limit) {
			return fault.New(fault.MaxTimeMSExpired, "operation exceeded time limit")
		}
		if text == "majority" && r.Oplog.Lags() {
			r.AsOf = r.Oplog.Committed()
		}
		return nil
	case "", "local", "available":
		return nil
	default:
		return fault.New(fault.FailedToParse, "unrecognized readConcern level: %s", text)
	}
}

// committed waits until the cluster time is majority-committed, the limit is over (zero is none) or ctx ends.
func (r *Request) committed(ctx context.Context, ts uint64, limit time.Time) bool {
	if r.Oplog.Committed() < ts {
		r.Oplog.Flush() // who waits has the journal written
	}
	for r.Oplog.Committed() < ts {
		changed := r.Oplog.Waiting(r.Oplog.Seek(ts), false)
		if r.Oplog.Committed() >= ts {
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
func (r *Request) concern(ctx context.Context, b *doc.Builder, before uint64) error {
	c, err := r.Document("writeConcern")
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
	majority := text == "majority" || !given && r.Release.Since(profile.R60)
	if ts := r.Oplog.Applied(); !majority || r.Standalone || ts == before && r.Oplog.Committed() >= ts {
		return nil
	}
	limit := r.Limit
	if v, ok := doc.Field(c, "wtimeout"); ok {
		if ms, _ := doc.Int(v); ms > 0 {
			limit = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
	}
	if !r.committed(ctx, r.Oplog.Applied(), limit) {
		writeConcernError(b, c)
	}
	return nil
}

func writeConcernError(b *doc.Builder, concern bsoncore.Document) {
	b.Open("writeConcernError").Int32("code", int32(fault.WriteConcernFailed)).String("codeName", fault.WriteConcernFailed.Name())
	b.String("errmsg", "waiting for replication timed out").Open("errInfo").Bool("wtimeout", true)
	if concern != nil {
		b.Doc("writeConcern", concern)
	}
	b.End().End()
}
