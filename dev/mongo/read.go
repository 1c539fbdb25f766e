package devmongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
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
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	var source cursorSource
	if isOplog(r.ns) && !r.config.Standalone {
		source, err = findOplog(r.oplog, q, r.truth("tailable"), r.truth("awaitData"))
	} else if r.truth("tailable") {
		err = wire.Errorf(wire.BadValue, "error processing query: tailable cursor requested on non capped collection")
	} else {
		var docs []bsoncore.Document
		docs, err = findWithin(r, q)
		source = newListSource(docs)
	}
	if err != nil {
		return err
	}
	return open(ctx, r, b, &openCursor{ns: r.ns.String(), source: source})
}

// findWithin finds documents within the bounds min and max, which are of the index on _id and hold
// across types.
func findWithin(r *request, q store.Query) ([]bsoncore.Document, error) {
	for name, at := range map[string]*bsoncore.Value{"min": &q.From, "max": &q.Until} {
		bound, err := r.document(name)
		if err != nil {
			return nil, err
		}
		if bound == nil {
			continue
		}
		if _, byID := q.Sort.ByID(); !byID {
			return nil, wire.Errorf(wire.CommandNotSupported, "devmongo supports min and max only with a sort by _id")
		}
		*at = bound.Lookup("_id")
	}
	return r.store.Find(r.ns, q, r.txn)
}

func runCount(_ context.Context, r *request, b *doc.Builder) error {
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

// finish appends the fields after the batch.
func finish(b *doc.Builder, c *openCursor, done bool) {
	if p, ok := c.source.(*oplog.Stream); ok {
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
	if s, ok := c.source.(*oplog.Stream); ok {
		s.Await(wait)
	}
	limit := r.batchSize(0)
	if limit == 0 {
		limit = -1
	}
	most := r.profile.MostEvents
	isMore := limit < 0 || limit > most
	if c.stream && most > 0 && isMore {
		limit = most
	}
	b.OpenArray("nextBatch").Splice(func(buf []byte) []byte {
		batch := wire.NewBatch(buf, limit)
		err = fillOrWait(ctx, c, batch, wait)
		return batch.Bytes()
	}).End()
	return err
}

func fillOrWait(ctx context.Context, c *openCursor, batch *wire.Batch, wait time.Duration) error {
	var timer *time.Timer
	for {
		news := c.source.Waiting() // before looking, so that nothing falls between
		if err := c.source.Fill(batch); err != nil {
			return err
		}
		mayWait := news != nil && wait > 0
		if batch.Len() > 0 || c.source.Closed() || !mayWait {
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

// awaitNews waits for news, for the time at which there may be some, or for the end of the wait,
// which it reports.
func awaitNews(ctx context.Context, c *openCursor, news <-chan struct{}, end <-chan time.Time) (over bool, err error) {
	var due <-chan time.Time
	if s, ok := c.source.(*oplog.Stream); ok {
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

func runAggregate(ctx context.Context, r *request, b *doc.Builder) error {
	r.counters.aggregates.Add(1)
	if err := r.only("pipeline", "cursor", "allowDiskUse", "bypassDocumentValidation", "hint"); err != nil {
		return err
	}
	if c, ok := r.field("cursor"); !ok || c.Type != bsoncore.TypeEmbeddedDocument {
		return wire.Errorf(wire.FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument")
	}
	if _, err := r.documents("pipeline"); err != nil {
		return err
	}
	stages, streams := r.changeStream()
	if streams {
		return watch(ctx, r, b, stages)
	}
	st, err := parseStages(stages)
	if err != nil {
		return err
	}
	n, err := r.collection()
	if err != nil {
		return wire.Errorf(wire.InvalidNamespace, "{aggregate: 1} is not valid here; a collection is required.")
	}
	docs, err := r.store.Find(n, store.Query{Filter: st.filter, AsOf: r.asOf}, r.txn)
	if isOplog(n) {
		docs = sortOplog(r.oplog, store.Query{Filter: st.filter})
		err = nil
	}
	if err != nil {
		return err
	}
	for _, step := range st.steps {
		docs = step(docs)
	}
	return open(ctx, r, b, &openCursor{ns: n.String(), source: newListSource(docs)})
}

// watch opens a change stream.
func watch(ctx context.Context, r *request, b *doc.Builder, stages []bsoncore.Document) error {
	r.streams = true
	if r.config.Standalone {
		return wire.Errorf(40573, "The $changeStream stage is only supported on replica sets")
	}
	if r.inTxn {
		return wire.Errorf(263, "Operation not permitted in transaction :: caused by :: Aggregation stage $changeStream cannot run within a multi-document transaction")
	}
	coll, _ := r.arg.StringValueOK()
	ns := r.db + ".$cmd.aggregate"
	if coll != "" {
		ns = r.db + "." + coll
	}
	r.oplog.TruncateOldest(r.profile.TruncateBeforeOpening)
	st, err := oplog.OpenStream(r.env(), r.db, coll, stages)
	if err != nil {
		return err
	}
	r.counters.opened.Add(1)
	return open(ctx, r, b, &openCursor{ns: ns, source: st, stream: true})
}

// stages is a compiled pipeline over a collection: a first $match, and the other stages.
type stages struct {
	filter *query.Filter
	steps  []func([]bsoncore.Document) []bsoncore.Document
}

func parseStages(list []bsoncore.Document) (*stages, error) {
	st := &stages{}
	for i, d := range list {
		name, arg, _ := doc.First(d)
		if name == "$match" && i == 0 {
			var err error
			if st.filter, err = matchStage(arg); err != nil {
				return nil, err
			}
			continue
		}
		step, err := parseStep(name, arg)
		if err != nil {
			return nil, err
		}
		st.steps = append(st.steps, step)
	}
	return st, nil
}

func matchStage(arg bsoncore.Value) (*query.Filter, error) {
	if arg.Type != bsoncore.TypeEmbeddedDocument {
		return nil, wire.Errorf(15959, "the match filter must be an expression in an object")
	}
	return query.ParseFilter(arg.Data)
}

func parseStep(name string, arg bsoncore.Value) (func([]bsoncore.Document) []bsoncore.Document, error) {
	switch name {
	case "$match":
		f, err := matchStage(arg)
		return func(docs []bsoncore.Document) []bsoncore.Document { return keep(docs, f.Match) }, err
	case "$sort":
		sort, err := query.ParseSort(arg.Data)
		return func(docs []bsoncore.Document) []bsoncore.Document { sort.Apply(docs); return docs }, err
	case "$project":
		p, err := query.ParseProjection(arg.Data)
		return func(docs []bsoncore.Document) []bsoncore.Document { return each(docs, p.Apply) }, err
	case "$skip", "$limit":
		return pageStep(name, arg)
	case "$count":
		field, ok := arg.StringValueOK()
		if !ok || field == "" {
			return nil, wire.Errorf(40156, "the count field must be a non-empty string")
		}
		return func(docs []bsoncore.Document) []bsoncore.Document { return count(docs, field) }, nil
	case "$group":
		return groupStep(arg)
	case "$changeStream":
		return nil, wire.Errorf(40602, "$changeStream is only valid as the first stage in a pipeline")
	}
	if oplog.KnownStage(name) {
		return nil, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the stage %s", name)
	}
	return nil, wire.Errorf(wire.UnrecognizedStage, "Unrecognized pipeline stage name: '%s'", name)
}

func keep(docs []bsoncore.Document, want func([]byte) bool) []bsoncore.Document {
	var out []bsoncore.Document
	for _, d := range docs {
		if want(d) {
			out = append(out, d)
		}
	}
	return out
}

func each(docs []bsoncore.Document, f func(bsoncore.Document) bsoncore.Document) []bsoncore.Document {
	out := make([]bsoncore.Document, len(docs))
	for i, d := range docs {
		out[i] = f(d)
	}
	return out
}

func pageStep(name string, arg bsoncore.Value) (func([]bsoncore.Document) []bsoncore.Document, error) {
	n, ok := doc.Int(arg)
	isNumber := ok && n >= 0
	if !isNumber || n == 0 && name == "$limit" {
		return nil, wire.Errorf(15957, "the %s must be a positive number", name[1:])
	}
	return func(docs []bsoncore.Document) []bsoncore.Document {
		at := min(n, int64(len(docs)))
		if name == "$skip" {
			return docs[at:]
		}
		return docs[:at]
	}, nil
}

func count(docs []bsoncore.Document, field string) []bsoncore.Document {
	if len(docs) == 0 {
		return nil
	}
	return []bsoncore.Document{doc.New().Int32(field, int32(len(docs))).Document()}
}

// groupStep is the $group of drivers' countDocuments: a constant _id and {$sum: 1}.
func groupStep(arg bsoncore.Value) (func([]bsoncore.Document) []bsoncore.Document, error) {
	unsupported := wire.Errorf(wire.CommandNotSupported, "devmongo supports $group only with a constant _id and {$sum: 1}")
	id, ok := doc.Field(arg.Data, "_id")
	if arg.Type != bsoncore.TypeEmbeddedDocument || !ok {
		return nil, wire.Errorf(15955, "a group specification must include an _id")
	}
	text, isText := id.StringValueOK()
	isVariable := isText && text != "" && text[0] == '$'
	if id.Type == bsoncore.TypeEmbeddedDocument || isVariable {
		return nil, unsupported
	}
	var sums []string
	for name, v := range doc.All(arg.Data) {
		if name == "_id" {
			continue
		}
		op, one, _ := doc.First(v.Data)
		n, _ := doc.Int(one)
		countsOne := op == "$sum" && n == 1
		if v.Type != bsoncore.TypeEmbeddedDocument || !countsOne || doc.Len(v.Data) != 1 {
			return nil, unsupported
		}
		sums = append(sums, name)
	}
	return func(docs []bsoncore.Document) []bsoncore.Document {
		if len(docs) == 0 {
			return nil
		}
		b := doc.New().Value("_id", id)
		for _, name := range sums {
			b.Int32(name, int32(len(docs)))
		}
		return []bsoncore.Document{b.Document()}
	}, nil
}

// tail reads the log in its order and makes the documents as they are wanted.
type tail struct {
	log      *oplog.Log
	q        store.Query
	tailable bool
	await    bool
	begun    bool
	seq      uint64
	taken    int64
	ended    bool
	pending  []bsoncore.Document
}

// findOplog is a find on local.oplog.rs. It begins where the filter on ts can first match. Against
// the order of the log, and in any order but the log's, the documents are collected at once. A
// tailable one stays open at the end of the log, and waits there when it is to await.
func findOplog(log *oplog.Log, q store.Query, tailable, await bool) (cursorSource, error) {
	natural := q.Sort == nil || q.Sort.Natural != 0
	isBackward := q.Sort != nil && q.Sort.Natural < 0
	switch {
	case tailable && (!natural || isBackward):
		return nil, wire.Errorf(wire.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
	case natural && !isBackward:
		t := &tail{log: log, q: q, tailable: tailable, await: await}
		_, t.seq = log.First()
		if v, ok := q.Filter.Floor("ts"); ok && v.Type == bsoncore.TypeTimestamp {
			t.seq = log.Seek(query.Timestamp(v))
		}
		return t, nil
	case natural:
		return newListSource(backwards(log, q)), nil
	default:
		return newListSource(sortOplog(log, q)), nil
	}
}

// Fill adds the next matching entries.
func (t *tail) Fill(b *wire.Batch) error {
	isUnderWay := t.begun && !t.ended
	if isUnderWay && t.seq > 0 && !t.log.Has(t.seq-1) {
		return wire.Errorf(wire.CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(%d)", t.seq)
	}
	t.begun = true
	for !t.ended && !b.Full() {
		if len(t.pending) == 0 && !t.more() {
			return nil
		}
		for len(t.pending) > 0 {
			if !b.Add(t.pending[0]) {
				return nil
			}
			t.pending = t.pending[1:]
			if t.taken++; t.q.Limit > 0 && t.taken >= t.q.Limit {
				t.ended = true
				return nil
			}
		}
	}
	return nil
}

// more makes the documents of the next entries that match; it reports false at the end of the log.
func (t *tail) more() bool {
	for {
		docs, next, ok := t.log.Documents(t.seq)
		if !ok {
			_, t.seq = t.log.First()
			continue
		}
		if len(docs) == 0 {
			t.ended = !t.tailable
			return false
		}
		t.seq = next
		for _, d := range docs {
			if !t.q.Filter.Match(d) {
				continue
			}
			if t.q.Skip > 0 {
				t.q.Skip--
				continue
			}
			t.pending = append(t.pending, t.q.Projection.Apply(d))
		}
		if len(t.pending) > 0 {
			return true
		}
	}
}

// Closed reports whether there is nothing more to come.
func (t *tail) Closed() bool { return t.ended && len(t.pending) == 0 }

// Waiting is for cursors that are to wait at the end of the log.
func (t *tail) Waiting() <-chan struct{} {
	if !t.tailable || !t.await {
		return nil
	}
	return t.log.Waiting(t.seq, true)
}

// backwards collects the matching documents from the newest on.
func backwards(log *oplog.Log, q store.Query) []bsoncore.Document {
	var out []bsoncore.Document
	for seq, ok := log.Back(log.Next()); ok; seq, ok = log.Back(seq) {
		docs, _, _ := log.Documents(seq)
		for _, d := range slices.Backward(docs) {
			if !q.Filter.Match(d) {
				continue
			}
			if q.Skip > 0 {
				q.Skip--
				continue
			}
			out = append(out, q.Projection.Apply(d))
			if q.Limit > 0 && int64(len(out)) >= q.Limit {
				return out
			}
		}
		if seq == 0 {
			break
		}
	}
	return out
}

// sortOplog collects the matching documents in the order of the sort.
func sortOplog(log *oplog.Log, q store.Query) []bsoncore.Document {
	all := backwards(log, store.Query{Filter: q.Filter})
	slices.Reverse(all)
	q.Sort.Apply(all)
	all = all[min(q.Skip, int64(len(all))):]
	if q.Limit > 0 {
		all = all[:min(q.Limit, int64(len(all)))]
	}
	for i := range all {
		all[i] = q.Projection.Apply(all[i])
	}
	return all
}

var _ cursorSource = (*tail)(nil)
