package devmongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// statements runs the statements of an insert, update or delete one by one. In an ordered command
// the first error is the last statement. In a transaction an error ends the transaction too; one
// after which it may be tried again fails the whole command.
type statements struct {
	request *request
	n       int64 // documents that statements report
	changed int64
	upserts []upsert
	errors  []writeError
}

type upsert struct {
	index int
	id    bsoncore.Value
}

type writeError struct {
	index int
	err   *wire.Error
}

// runStatements calls f for every document of the list that the command brings, unless it was
// executed before, and answers.
func runStatements(
	ctx context.Context, r *request, b *doc.Builder, list string, f func(store.Writer, bsoncore.Document) (store.WriteResult, error),
) error {
	docs, err := r.documents(list)
	if err != nil {
		return err
	}
	if len(docs) == 0 || len(docs) > maxWriteBatch {
		return wire.Errorf(wire.InvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatch, len(docs))
	}
	ordered := true
	if v, ok := r.field("ordered"); ok {
		ordered = doc.Truth(v)
	}
	st := &statements{request: r}
	for i, d := range docs {
		err := st.one(ctx, i, d, f)
		if err == nil {
			continue
		}
		endsTxn := wire.HasCode(err, wire.WriteConflict) || wire.HasCode(err, wire.NoSuchTransaction)
		if ctx.Err() != nil || r.inTxn && endsTxn {
			return err
		}
		st.errors = append(st.errors, writeError{i, wire.ErrorOf(err)})
		if r.inTxn {
			r.session.Fail()
		}
		if ordered || r.inTxn {
			break
		}
	}
	st.reply(b, r.name == "update")
	return nil
}

func (st *statements) one(ctx context.Context, i int, d bsoncore.Document, f func(store.Writer, bsoncore.Document) (store.WriteResult, error)) error {
	r := st.request
	w := r.writer
	w.Stmt = statement(r, i)
	done := false
	var result store.WriteResult
	if w.Session != nil {
		result, done = r.session.Done(w.Stmt)
	}
	if !done {
		err := r.patiently(ctx, func() (err error) {
			result, err = f(w, d)
			return err
		})
		if err != nil {
			return err
		}
		if w.Session != nil {
			r.session.Record(w.Stmt, result)
		}
	}
	st.n += result.Matched
	st.changed += result.Modified
	if result.Upserted != nil {
		st.n++
		st.upserts = append(st.upserts, upsert{i, *result.Upserted})
	}
	return nil
}

// statement is the number of statement i in its transaction number.
func statement(r *request, i int) int32 {
	if v, ok := r.field("stmtIds"); ok {
		if id, ok := doc.Field(v.Data, doc.Index(i)); ok {
			n, _ := doc.Int(id)
			return int32(n)
		}
	}
	n, _ := r.int("stmtId")
	return int32(n) + int32(i)
}

// reply appends what all three commands answer.
func (st *statements) reply(b *doc.Builder, updates bool) {
	b.Int32("n", int32(st.n))
	if updates {
		b.Int32("nModified", int32(st.changed))
		if len(st.upserts) > 0 {
			b.OpenArray("upserted")
			for i, u := range st.upserts {
				b.Open(doc.Index(i)).Int32("index", int32(u.index)).Value("_id", u.id).End()
			}
			b.End()
		}
	}
	if len(st.errors) > 0 {
		b.OpenArray("writeErrors")
		for i, e := range st.errors {
			b.Open(doc.Index(i)).Int32("index", int32(e.index)).Int32("code", int32(e.err.Code)).Raw(e.err.Extra)
			b.String("errmsg", e.err.Message).End()
		}
		b.End()
	}
	if r := st.request; !r.config.Standalone {
		opTime(b, "opTime", r.oplog.Applied())
		b.ObjectID("electionId", electionID())
	}
}

func runInsert(ctx context.Context, r *request, b *doc.Builder) error {
	return runStatements(ctx, r, b, "documents", func(w store.Writer, d bsoncore.Document) (store.WriteResult, error) {
		return store.WriteResult{Matched: 1}, r.store.Insert(r.ns, d, w)
	})
}

func parseChange(d bsoncore.Document) (store.Change, error) {
	var ch store.Change
	if err := onlyFields(d, "update", "q", "u", "multi", "upsert", "hint", "arrayFilters"); err != nil {
		return ch, err
	}
	var err error
	if ch.Filter, err = filterField(d, "q"); err != nil {
		return ch, err
	}
	u, _ := doc.Field(d, "u")
	arrayFilters, _ := doc.Field(d, "arrayFilters")
	if ch.Update, err = query.ParseUpdate(u, arrayFilters); err != nil {
		return ch, err
	}
	multi, _ := doc.Field(d, "multi")
	up, _ := doc.Field(d, "upsert")
	ch.Multi, ch.Upsert = doc.Truth(multi), doc.Truth(up)
	if ch.Multi && ch.Update.IsReplacement() {
		return ch, wire.Errorf(wire.FailedToParse, "multi update is not supported for replacement-style update")
	}
	return ch, nil
}

func runUpdate(ctx context.Context, r *request, b *doc.Builder) error {
	return runStatements(ctx, r, b, "updates", func(w store.Writer, d bsoncore.Document) (store.WriteResult, error) {
		ch, err := parseChange(d)
		if err != nil {
			return store.WriteResult{}, err
		}
		if ch.Multi && w.Session != nil {
			return store.WriteResult{}, wire.Errorf(wire.InvalidOptions, "Cannot use (or request) retryable writes with multi=true")
		}
		return r.store.Update(r.ns, ch, w)
	})
}

func runDelete(ctx context.Context, r *request, b *doc.Builder) error {
	return runStatements(ctx, r, b, "deletes", func(w store.Writer, d bsoncore.Document) (store.WriteResult, error) {
		if err := onlyFields(d, "delete", "q", "limit", "hint"); err != nil {
			return store.WriteResult{}, err
		}
		f, err := filterField(d, "q")
		if err != nil {
			return store.WriteResult{}, err
		}
		limit, ok := doc.Field(d, "limit")
		one, _ := doc.Int(limit)
		if !ok || one != 0 && one != 1 {
			return store.WriteResult{}, wire.Errorf(wire.FailedToParse, "The limit field in delete objects must be 0 or 1. Got %s", doc.Literal(limit))
		}
		if one == 0 && w.Session != nil {
			return store.WriteResult{}, wire.Errorf(wire.InvalidOptions, "Cannot use (or request) retryable writes with limit=0")
		}
		count, err := r.store.Delete(r.ns, f, one == 1, w)
		return store.WriteResult{Matched: count}, err
	})
}

func runFindAndModify(ctx context.Context, r *request, b *doc.Builder) error {
	m, fields, err := parseModification(r)
	if err != nil {
		return err
	}
	stmt := statement(r, 0)
	if r.writer.Session != nil {
		if done, ok := r.session.Done(stmt); ok {
			b.Raw(elements(done.Reply))
			return nil
		}
	}
	w := r.writer
	w.Stmt = stmt
	var out store.Modified
	if err := r.patiently(ctx, func() (err error) {
		out, err = r.store.Modify(r.ns, m, w)
		return err
	}); err != nil {
		return err
	}
	reply := modifiedReply(m, out, fields)
	if w.Session != nil {
		r.session.Record(stmt, store.WriteResult{Reply: reply})
	}
	b.Raw(elements(reply))
	return nil
}

func parseModification(r *request) (store.Modification, *query.Projection, error) {
	m := store.Modification{New: r.truth("new"), Upsert: r.truth("upsert")}
	var err error
	if m.Filter, err = filterField(r.body, "query"); err != nil {
		return m, nil, err
	}
	sort, err := r.document("sort")
	if err != nil {
		return m, nil, err
	}
	if m.Sort, err = query.ParseSort(sort); err != nil {
		return m, nil, err
	}
	fields, err := r.document("fields")
	if err != nil {
		return m, nil, err
	}
	projection, err := query.ParseProjection(fields)
	if err != nil {
		return m, nil, err
	}
	u, updates := r.field("update")
	isUpdate := updates || m.Upsert || m.New
	switch remove := r.truth("remove"); {
	case remove && isUpdate:
		return m, nil, wire.Errorf(wire.FailedToParse, "Cannot specify both an update and remove=true")
	case !remove && !updates:
		return m, nil, wire.Errorf(wire.FailedToParse, "Either an update or remove=true must be specified")
	case !remove:
		arrayFilters, _ := r.field("arrayFilters")
		m.Update, err = query.ParseUpdate(u, arrayFilters)
	}
	return m, projection, err
}

func modifiedReply(m store.Modification, out store.Modified, p *query.Projection) bsoncore.Document {
	b := doc.New().Open("lastErrorObject")
	switch {
	case m.Update == nil && out.Found, m.Update != nil && (out.Found || out.Upserted != nil):
		b.Int32("n", 1)
	default:
		b.Int32("n", 0)
	}
	if m.Update != nil {
		b.Bool("updatedExisting", out.Found)
	}
	if out.Upserted != nil {
		b.Value("upserted", *out.Upserted)
	}
	b.End()
	if out.Value == nil {
		b.Null("value")
	} else {
		b.Doc("value", p.Apply(out.Value))
	}
	return b.Document()
}
