package devmongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

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
		docs, err = sortOplog(r.oplog, store.Query{Filter: st.filter}), nil
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
	if r.standalone {
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
	r.oplog.TruncateOldest(r.TruncateBeforeOpening)
	st, err := oplog.OpenStream(r.env(), r.db, coll, stages)
	if err != nil {
		return err
	}
	r.counters.opened.Add(1)
	return open(ctx, r, b, &openCursor{ns: ns, source: st, stream: true})
}

// stages is a compiled pipeline over a collection: a first $match, and what follows.
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
	if !ok || n < 0 || n == 0 && name == "$limit" {
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
	if text, isText := id.StringValueOK(); id.Type == bsoncore.TypeEmbeddedDocument || isText && text != "" && text[0] == '$' {
		return nil, unsupported
	}
	var sums []string
	for name, v := range doc.All(arg.Data) {
		if name == "_id" {
			continue
		}
		op, one, _ := doc.First(v.Data)
		if n, _ := doc.Int(one); v.Type != bsoncore.TypeEmbeddedDocument || op != "$sum" || n != 1 || doc.Len(v.Data) != 1 {
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
