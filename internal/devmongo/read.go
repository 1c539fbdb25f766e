package devmongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// firstBatch is how many documents a first reply has when the client does not say.
const firstBatch = 101

// defaultAwait is how long a getMore waits for news when the client does not say.
const defaultAwait = time.Second

func parseQuery(r *request) (store.Query, error) {
	var q store.Query
	var err error
	if q.Filter, err = filterField(r.body, filterName(r)); err != nil {
		return q, err
	}
	sort, err := r.document("sort")
	if err != nil {
		return q, err
	}
	if q.Sort, err = query.ParseSort(sort); err != nil {
		return q, err
	}
	projection, err := r.document("projection")
	if err != nil {
		return q, err
	}
	if q.Projection, err = query.ParseProjection(projection); err != nil {
		return q, err
	}
	q.AsOf = r.asOf
	q.Skip, _ = r.int("skip")
	q.Limit, _ = r.int("limit")
	if q.Skip < 0 || q.Limit < 0 {
		return q, wire.Errorf(51024, "BSON field value must be >= 0, actual value '%d'", min(q.Skip, q.Limit))
	}
	return q, nil
}

func filterName(r *request) string {
	if r.name == "count" {
		return "query"
	}
	return "filter"
}

func runFind(ctx context.Context, r *request, b *doc.Builder) error {
	if err := r.only("filter", "sort", "projection", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData",
		"noCursorTimeout", "oplogReplay", "allowPartialResults", "allowDiskUse", "hint"); err != nil {
		return err
	}
	n, err := r.collection()
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	var source cursorSource
	if isOplog(n) && !r.standalone {
		source, err = findOplog(r.oplog, q, r.truth("tailable"), r.truth("awaitData"))
	} else if r.truth("tailable") {
		err = wire.Errorf(wire.BadValue, "error processing query: tailable cursor requested on non capped collection")
	} else {
		var docs []bsoncore.Document
		docs, err = r.store.Find(n, q, r.txn)
		source = newListSource(docs)
	}
	if err != nil {
		return err
	}
	return open(ctx, r, b, &openCursor{ns: n.String(), source: source})
}

func runCount(_ context.Context, r *request, b *doc.Builder) error {
	if err := r.only("query", "skip", "limit", "hint"); err != nil {
		return err
	}
	if r.inTxn {
		return wire.Errorf(263, "Cannot run 'count' in a multi-document transaction.")
	}
	n, err := r.collection()
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	var count int64
	if isOplog(n) && q.Filter == nil {
		count, _ = r.oplog.Size()
	} else if count, err = r.store.Count(n, q, nil); err != nil {
		return err
	}
	b.Int32("n", int32(count))
	return nil
}

// open answers with a cursor's first batch, and keeps the cursor when there may be more.
func open(ctx context.Context, r *request, b *doc.Builder, c *openCursor) error {
	limit := r.batchSize(firstBatch)
	b.Open("cursor")
	if err := fill(b, "firstBatch", c.source, limit); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := c.source.Closed() || r.truth("singleBatch")
	if !done {
		r.cursors.add(c)
	}
	finish(b, c, done)
	return nil
}

// fill appends a batch under its name.
func fill(b *doc.Builder, name string, source cursorSource, limit int) (err error) {
	b.OpenArray(name).Splice(func(buf []byte) []byte {
		batch := wire.NewBatch(buf, limit)
		if limit != 0 {
			err = source.Fill(batch)
		}
		return batch.Bytes()
	}).End()
	return err
}

// positioned is a source with a post-batch resume token.
type positioned interface {
	Token() bsoncore.Document
	Invalidated() bool
}

// finish appends what follows the batch.
func finish(b *doc.Builder, c *openCursor, done bool) {
	if p, ok := c.source.(positioned); ok {
		b.Doc("postBatchResumeToken", p.Token())
		if p.Invalidated() {
			b.Bool("invalidated", true)
		}
	}
	id := c.id
	if done {
		id = 0
	}
	b.Int64("id", id).String("ns", c.ns).End()
}

func runGetMore(ctx context.Context, r *request, b *doc.Builder) error {
	r.counters.getMores.Add(1)
	if err := r.only("collection", "batchSize"); err != nil {
		return err
	}
	id, ok := r.arg.Int64OK()
	if !ok {
		return wire.Errorf(wire.TypeMismatch, "BSON field 'getMore.getMore' is the wrong type '%s', expected type 'long'", doc.TypeName(r.arg.Type))
	}
	c, err := r.cursors.checkOut(id, r.db+"."+r.text("collection"))
	if err != nil {
		return err
	}
	r.streams = c.stream
	b.Open("cursor")
	err = next(ctx, r, b, c)
	done := err != nil || c.source.Closed()
	r.cursors.checkIn(c, done)
	if err != nil {
		return err
	}
	finish(b, c, done)
	return nil
}

// next appends the next batch; where the source can wait, it waits for at least one document.
func next(ctx context.Context, r *request, b *doc.Builder, c *openCursor) (err error) {
	wait := defaultAwait
	if ms, ok := r.int("maxTimeMS"); ok && ms >= 0 {
		wait = time.Duration(ms) * time.Millisecond
	}
	if s, ok := c.source.(sharded); ok {
		s.Await(wait)
	}
	limit := r.batchSize(0)
	if limit == 0 {
		limit = -1
	}
	b.OpenArray("nextBatch").Splice(func(buf []byte) []byte {
		batch := wire.NewBatch(buf, limit)
		err = fillOrWait(ctx, c, batch, wait)
		return batch.Bytes()
	}).End()
	return err
}

// sharded is a source behind which several servers stand.
type sharded interface {
	// Await says how long a getMore waits.
	Await(d time.Duration)
	// Due is when there may be more although nothing was written, zero for never.
	Due() time.Time
}

func fillOrWait(ctx context.Context, c *openCursor, batch *wire.Batch, wait time.Duration) error {
	var timer *time.Timer
	for {
		news := c.source.Waiting() // before looking, so that nothing falls between
		if err := c.source.Fill(batch); err != nil {
			return err
		}
		if batch.Len() > 0 || c.source.Closed() || news == nil || wait <= 0 {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		}
		over, err := awaitNews(ctx, c, news, timer.C)
		if err != nil {
			return err
		}
		if over {
			return c.source.Fill(batch)
		}
	}
}

// awaitNews waits for news, for the time at which there may be some, or for the end of the wait, which it reports.
func awaitNews(ctx context.Context, c *openCursor, news <-chan struct{}, end <-chan time.Time) (over bool, err error) {
	var due <-chan time.Time
	if s, ok := c.source.(sharded); ok {
		if at := s.Due(); !at.IsZero() {
			timer := time.NewTimer(time.Until(at))
			defer timer.Stop()
			due = timer.C
		}
	}
	select {
	case <-news:
	case <-due:
	case <-end:
		return true, nil
	case <-c.killed:
		return false, wire.Errorf(wire.CursorKilled, "operation was interrupted because the cursor was killed")
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

func runKillCursors(_ context.Context, r *request, b *doc.Builder) error {
	r.counters.killCursors.Add(1)
	v, ok := r.field("cursors")
	if !ok || v.Type != bsoncore.TypeArray {
		return wire.Errorf(wire.FailedToParse, "Field 'cursors' must be of type array in: %s", doc.Text(r.body))
	}
	var killed, missing []bsoncore.Value
	for item := range doc.Values(v.Data) {
		if id, ok := item.Int64OK(); ok && r.cursors.killID(id) {
			killed = append(killed, item)
		} else {
			missing = append(missing, item)
		}
	}
	b.Value("cursorsKilled", query.Array(killed)).Value("cursorsNotFound", query.Array(missing))
	b.OpenArray("cursorsAlive").End().OpenArray("cursorsUnknown").End()
	return nil
}
