package crud

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/session"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/update"
)

// statements runs the statements of an insert, update or delete one by one. In an ordered command the first error
// is the last statement. In a transaction an error ends the transaction too; one after which it may be tried again
// fails the whole command.
type statements struct {
	request *node.Request
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
	err   *fault.Error
}

// each calls f for every statement, unless it was carried out before, and then remembers its outcome.
func (st *statements) each(ctx context.Context, docs []bsoncore.Document, f func(store.Writer, bsoncore.Document) (session.Result, error)) error {
	if len(docs) == 0 || len(docs) > node.MaxWriteBatch {
		return fault.New(fault.InvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.", node.MaxWriteBatch, len(docs))
	}
	ordered := true
	if v, ok := st.request.Field("ordered"); ok {
		ordered = doc.Truth(v)
	}
	for i, d := range docs {
		err := st.one(ctx, i, d, f)
		if err == nil {
			continue
		}
		inTxn := st.request.InTxn
		if ctx.Err() != nil || inTxn && (fault.Is(err, fault.WriteConflict) || fault.Is(err, fault.NoSuchTransaction)) {
			return err
		}
		st.errors = append(st.errors, writeError{i, fault.From(err)})
		if inTxn {
			st.request.Session.Fail()
		}
		if ordered || inTxn {
			break
		}
	}
	return nil
}

func (st *statements) one(ctx context.Context, i int, d bsoncore.Document, f func(store.Writer, bsoncore.Document) (session.Result, error)) error {
	r := st.request
	w := r.Writer
	w.Stmt = statement(r, i)
	done := false
	var result session.Result
	if w.Session != nil {
		result, done = r.Session.Done(w.Stmt)
	}
	if !done {
		err := r.Patiently(ctx, func() (err error) {
			result, err = f(w, d)
			return err
		})
		if err != nil {
			return err
		}
		if w.Session != nil {
			r.Session.Record(w.Stmt, result)
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
func statement(r *node.Request, i int) int32 {
	if v, ok := r.Field("stmtIds"); ok {
		if id, ok := doc.Field(v.Data, doc.Index(i)); ok {
			n, _ := doc.Int(id)
			return int32(n)
		}
	}
	n, _ := r.Int("stmtId")
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
	if r := st.request; !r.Standalone {
		node.OpTime(b, "opTime", r.Oplog.Applied())
		b.ObjectID("electionId", node.ElectionID())
	}
}

func runInsert(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("documents", "ordered", "bypassDocumentValidation", "stmtId", "stmtIds"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	docs, err := r.Documents("documents")
	if err != nil {
		return err
	}
	st := &statements{request: r}
	if err := st.each(ctx, docs, func(w store.Writer, d bsoncore.Document) (session.Result, error) {
		return session.Result{Matched: 1}, r.Store.Insert(n, d, w)
	}); err != nil {
		return err
	}
	st.reply(b, false)
	return nil
}

func parseChange(d bsoncore.Document) (store.Change, error) {
	var ch store.Change
	if err := node.OnlyFields(d, "update", "q", "u", "multi", "upsert", "hint"); err != nil {
		return ch, err
	}
	var err error
	if ch.Filter, err = node.Filter(d, "q"); err != nil {
		return ch, err
	}
	u, _ := doc.Field(d, "u")
	if ch.Update, err = update.Parse(u); err != nil {
		return ch, err
	}
	multi, _ := doc.Field(d, "multi")
	up, _ := doc.Field(d, "upsert")
	ch.Multi, ch.Upsert = doc.Truth(multi), doc.Truth(up)
	if ch.Multi && ch.Update.IsReplacement() {
		return ch, fault.New(fault.FailedToParse, "multi update is not supported for replacement-style update")
	}
	return ch, nil
}

func runUpdate(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("updates", "ordered", "bypassDocumentValidation", "stmtId", "stmtIds"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	docs, err := r.Documents("updates")
	if err != nil {
		return err
	}
	st := &statements{request: r}
	if err := st.each(ctx, docs, func(w store.Writer, d bsoncore.Document) (session.Result, error) {
		ch, err := parseChange(d)
		if err != nil {
			return session.Result{}, err
		}
		if ch.Multi && w.Session != nil {
			return session.Result{}, fault.New(fault.InvalidOptions, "Cannot use (or request) retryable writes with multi=true")
		}
		out, err := r.Store.Update(n, ch, w)
		return session.Result{Matched: out.Matched, Modified: out.Modified, Upserted: out.Upserted}, err
	}); err != nil {
		return err
	}
	st.reply(b, true)
	return nil
}

func runDelete(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("deletes", "ordered", "stmtId", "stmtIds"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	docs, err := r.Documents("deletes")
	if err != nil {
		return err
	}
	st := &statements{request: r}
	if err := st.each(ctx, docs, func(w store.Writer, d bsoncore.Document) (session.Result, error) {
		if err := node.OnlyFields(d, "delete", "q", "limit", "hint"); err != nil {
			return session.Result{}, err
		}
		f, err := node.Filter(d, "q")
		if err != nil {
			return session.Result{}, err
		}
		limit, ok := doc.Field(d, "limit")
		one, _ := doc.Int(limit)
		if !ok || one != 0 && one != 1 {
			return session.Result{}, fault.New(fault.FailedToParse, "The limit field in delete objects must be 0 or 1. Got %s", doc.Literal(limit))
		}
		if one == 0 && w.Session != nil {
			return session.Result{}, fault.New(fault.InvalidOptions, "Cannot use (or request) retryable writes with limit=0")
		}
		count, err := r.Store.Delete(n, f, one == 1, w)
		return session.Result{Matched: count}, err
	}); err != nil {
		return err
	}
	st.reply(b, false)
	return nil
}

func runFindAndModify(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("query", "sort", "remove", "update", "new", "fields", "upsert", "bypassDocumentValidation", "hint", "stmtId"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	m, fields, err := parseModification(r)
	if err != nil {
		return err
	}
	stmt := statement(r, 0)
	if r.Writer.Session != nil {
		if done, ok := r.Session.Done(stmt); ok {
			b.Raw(node.Elements(done.Reply))
			return nil
		}
	}
	w := r.Writer
	w.Stmt = stmt
	var out store.Modified
	if err := r.Patiently(ctx, func() (err error) {
		out, err = r.Store.Modify(n, m, w)
		return err
	}); err != nil {
		return err
	}
	reply := modifiedReply(m, out, fields)
	if w.Session != nil {
		r.Session.Record(stmt, session.Result{Reply: reply})
	}
	b.Raw(node.Elements(reply))
	return nil
}

func parseModification(r *node.Request) (store.Modification, *query.Projection, error) {
	m := store.Modification{New: r.Truth("new"), Upsert: r.Truth("upsert")}
	var err error
	if m.Filter, err = node.Filter(r.Body, "query"); err != nil {
		return m, nil, err
	}
	sort, err := r.Document("sort")
	if err != nil {
		return m, nil, err
	}
	if m.Sort, err = query.ParseSort(sort); err != nil {
		return m, nil, err
	}
	fields, err := r.Document("fields")
	if err != nil {
		return m, nil, err
	}
	projection, err := query.ParseProjection(fields)
	if err != nil {
		return m, nil, err
	}
	u, updates := r.Field("update")
	switch remove := r.Truth("remove"); {
	case remove && (updates || m.Upsert || m.New):
		return m, nil, fault.New(fault.FailedToParse, "Cannot specify both an update and remove=true")
	case !remove && !updates:
		return m, nil, fault.New(fault.FailedToParse, "Either an update or remove=true must be specified")
	case !remove:
		m.Update, err = update.Parse(u)
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
