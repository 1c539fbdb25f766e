package crud

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/cursor"
	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/tail"
)

// firstBatch is how many documents a first reply has when the client does not say.
const firstBatch = 101

// defaultAwait is how long a getMore waits for news when the client does not say.
const defaultAwait = time.Second

func parseQuery(r *node.Request) (store.Query, error) {
	var q store.Query
	var err error
	if q.Filter, err = node.Filter(r.Body, filterName(r)); err != nil {
		return q, err
	}
	sort, err := r.Document("sort")
	if err != nil {
		return q, err
	}
	if q.Sort, err = query.ParseSort(sort); err != nil {
		return q, err
	}
	projection, err := r.Document("projection")
	if err != nil {
		return q, err
	}
	if q.Projection, err = query.ParseProjection(projection); err != nil {
		return q, err
	}
	q.AsOf = r.AsOf
	q.Skip, _ = r.Int("skip")
	q.Limit, _ = r.Int("limit")
	if q.Skip < 0 || q.Limit < 0 {
		return q, fault.New(51024, "BSON field value must be >= 0, actual value '%d'", min(q.Skip, q.Limit))
	}
	return q, nil
}

func filterName(r *node.Request) string {
	if r.Name == "count" {
		return "query"
	}
	return "filter"
}

func runFind(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("filter", "sort", "projection", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData",
		"noCursorTimeout", "oplogReplay", "allowPartialResults", "allowDiskUse", "hint", "min", "max"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	var source cursor.Source
	if node.IsOplog(n) && !r.Standalone {
		source, err = tail.Find(r.Oplog, q, r.Truth("tailable"), r.Truth("awaitData"))
	} else if r.Truth("tailable") {
		err = fault.New(fault.BadValue, "error processing query: tailable cursor requested on non capped collection")
	} else {
		var docs []bsoncore.Document
		docs, err = findWithin(r, n, q)
		source = cursor.NewList(docs)
	}
	if err != nil {
		return err
	}
	return open(ctx, r, b, &cursor.Cursor{NS: n.String(), Source: source})
}

// findWithin finds documents within the bounds min and max, which are of the index on _id and hold across types.
func findWithin(r *node.Request, n store.Name, q store.Query) ([]bsoncore.Document, error) {
	least, err := r.Document("min")
	if err != nil {
		return nil, err
	}
	most, err := r.Document("max")
	if err != nil {
		return nil, err
	}
	if least == nil && most == nil {
		return r.Store.Find(n, q, r.Txn)
	}
	limit := q.Limit
	q.Limit = 0
	docs, err := r.Store.Find(n, q, r.Txn)
	docs = slices.DeleteFunc(docs, func(d bsoncore.Document) bool {
		id := d.Lookup("_id")
		return least != nil && query.Compare(id, least.Lookup("_id")) < 0 || most != nil && query.Compare(id, most.Lookup("_id")) >= 0
	})
	if limit > 0 && int64(len(docs)) > limit {
		docs = docs[:limit]
	}
	return docs, err
}

func runCount(_ context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("query", "skip", "limit", "hint"); err != nil {
		return err
	}
	if r.InTxn {
		return fault.New(263, "Cannot run 'count' in a multi-document transaction.")
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	var count int64
	if node.IsOplog(n) && q.Filter == nil {
		count, _ = r.Oplog.Size()
	} else if count, err = r.Store.Count(n, q, nil); err != nil {
		return err
	}
	b.Int32("n", int32(count))
	return nil
}

// open answers with a cursor's first batch, and keeps the cursor when there may be more.
func open(ctx context.Context, r *node.Request, b *doc.Builder, c *cursor.Cursor) error {
	limit := r.BatchSize(firstBatch)
	b.Open("cursor")
	if err := fill(b, "firstBatch", c.Source, limit); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := c.Source.Closed() || r.Truth("singleBatch")
	if !done {
		r.Cursors.Add(c)
	}
	finish(b, c, done)
	return nil
}

// fill appends a batch under its name.
func fill(b *doc.Builder, name string, source cursor.Source, limit int) (err error) {
	b.OpenArray(name).Splice(func(buf []byte) []byte {
		batch := cursor.NewBatch(buf, limit)
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
func finish(b *doc.Builder, c *cursor.Cursor, done bool) {
	if p, ok := c.Source.(positioned); ok {
		b.Doc("postBatchResumeToken", p.Token())
		if p.Invalidated() {
			b.Bool("invalidated", true)
		}
	}
	id := c.ID
	if done {
		id = 0
	}
	b.Int64("id", id).String("ns", c.NS).End()
}

func runGetMore(ctx context.Context, r *node.Request, b *doc.Builder) error {
	r.Counters.GetMores.Add(1)
	if err := r.Only("collection", "batchSize"); err != nil {
		return err
	}
	id, ok := r.Arg.Int64OK()
	if !ok {
		return fault.New(fault.TypeMismatch, "BSON field 'getMore.getMore' is the wrong type '%s', expected type 'long'", doc.TypeName(r.Arg.Type))
	}
	c, err := r.Cursors.CheckOut(id, r.DB+"."+r.Text("collection"))
	if err != nil {
		return err
	}
	r.Streams = c.Stream
	b.Open("cursor")
	err = next(ctx, r, b, c)
	done := err != nil || c.Source.Closed()
	r.Cursors.CheckIn(c, done)
	if err != nil {
		return err
	}
	finish(b, c, done)
	return nil
}

// next appends the next batch; where the source can wait, it waits for at least one document.
func next(ctx context.Context, r *node.Request, b *doc.Builder, c *cursor.Cursor) (err error) {
	wait := defaultAwait
	if ms, ok := r.Int("maxTimeMS"); ok && ms >= 0 {
		wait = time.Duration(ms) * time.Millisecond
	}
	if s, ok := c.Source.(sharded); ok {
		s.Await(wait)
	}
	limit := r.BatchSize(0)
	if limit == 0 {
		limit = -1
	}
	b.OpenArray("nextBatch").Splice(func(buf []byte) []byte {
		batch := cursor.NewBatch(buf, limit)
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

func fillOrWait(ctx context.Context, c *cursor.Cursor, batch *cursor.Batch, wait time.Duration) error {
	var timer *time.Timer
	for {
		news := c.Source.Waiting() // before looking, so that nothing falls between
		if err := c.Source.Fill(batch); err != nil {
			return err
		}
		if batch.Len() > 0 || c.Source.Closed() || news == nil || wait <= 0 {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		}
		over, err := await(ctx, c, news, timer.C)
		if err != nil {
			return err
		}
		if over {
			return c.Source.Fill(batch)
		}
	}
}

// await waits for news, for the time at which there may be some, or for the end of the wait, which it reports.
func await(ctx context.Context, c *cursor.Cursor, news <-chan struct{}, end <-chan time.Time) (over bool, err error) {
	var due <-chan time.Time
	if s, ok := c.Source.(sharded); ok {
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
	case <-c.Killed():
		return false, fault.New(fault.CursorKilled, "operation was interrupted because the cursor was killed")
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

func runKillCursors(_ context.Context, r *node.Request, b *doc.Builder) error {
	r.Counters.KillCursors.Add(1)
	v, ok := r.Field("cursors")
	if !ok || v.Type != bsoncore.TypeArray {
		return fault.New(fault.FailedToParse, "Field 'cursors' must be of type array in: %s", doc.Text(r.Body))
	}
	var killed, missing []bsoncore.Value
	for item := range doc.Values(v.Data) {
		if id, ok := item.Int64OK(); ok && r.Cursors.Kill(id) {
			killed = append(killed, item)
		} else {
			missing = append(missing, item)
		}
	}
	b.Value("cursorsKilled", query.Array(killed)).Value("cursorsNotFound", query.Array(missing))
	b.OpenArray("cursorsAlive").End().OpenArray("cursorsUnknown").End()
	return nil
}
