package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/identity"
	"github.com/mongostream/streamer/internal/devmongo/keystring"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/table"
	"github.com/mongostream/streamer/internal/devmongo/update"
)

// Insert stores one document, with an _id in front. The document is copied.
func (s *Store) Insert(n Name, d bsoncore.Document, w Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.target(n, w)
	if err != nil {
		return err
	}
	d, id, err := identity.Assign(d)
	if err != nil {
		return err
	}
	if len(d) > MaxDocument {
		return fault.New(fault.BadValue, "object to insert too large. size in bytes: %d, max size: %d", len(d), MaxDocument)
	}
	return s.insert(c, d, id, w)
}

func (s *Store) insert(c *collection, d bsoncore.Document, id bsoncore.Value, w Writer) error {
	key, err := keystring.Key(id)
	if err != nil {
		return err
	}
	if err := c.free(key, w.Txn); err != nil {
		return err
	}
	if _, taken := c.See(key, w.Txn.overlayOf(c)); taken {
		return identity.Duplicate(c.ns.String(), id)
	}
	op := oplog.Op{Kind: oplog.Insert, NS: c.ns, ID: id, Doc: d}
	if w.Txn != nil {
		w.Txn.write(c, key, d, op)
		return nil
	}
	ts := s.append(op, w)
	s.remember(c, key, ts)
	c.Table.Insert(key, d, ts)
	return nil
}

func (s *Store) append(op oplog.Op, w Writer) uint64 {
	op.Session, op.Stmt = w.Session, w.Stmt
	return s.log.Append(op)
}

// Change is an update statement.
type Change struct {
	Filter *query.Filter
	Update *update.Update
	Multi  bool
	Upsert bool
}

// Outcome is what an update statement did.
type Outcome struct {
	Matched, Modified int64
	Upserted          *bsoncore.Value
}

// Update changes the matching documents, or inserts one.
func (s *Store) Update(n Name, ch Change, w Writer) (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out Outcome
	limit := 1
	if ch.Multi {
		limit = 0
	}
	c := s.seen(n, w.Txn)
	var rows []table.Found
	if c != nil {
		var err error
		if rows, err = c.Matching(ch.Filter, w.Txn.overlayOf(c), limit); err != nil {
			return out, err
		}
	}
	if len(rows) == 0 && ch.Upsert {
		id, _, err := s.upsert(n, ch.Filter, ch.Update, w)
		out.Upserted = &id
		return out, err
	}
	if err := c.freeAll(rows, w.Txn); err != nil {
		return out, err
	}
	for _, row := range rows {
		_, changed, err := s.change(c, row, ch.Update, w)
		if err != nil {
			return out, err
		}
		out.Matched++
		if changed {
			out.Modified++
		}
	}
	return out, nil
}

// change applies an update to one document and logs it.
func (s *Store) change(c *collection, row table.Found, u *update.Update, w Writer) (bsoncore.Document, bool, error) {
	r, err := u.Apply(row.Doc, update.Context{Scope: s.scope()})
	if err != nil || !r.Changed {
		return row.Doc, false, err
	}
	if len(r.Doc) > MaxDocument {
		return nil, false, fault.New(17419, "Resulting document after update is larger than %d", MaxDocument)
	}
	op := s.updateOp(c, row, &r, u)
	if w.Txn != nil {
		w.Txn.write(c, row.Key, r.Doc, op)
		return r.Doc, true, nil
	}
	ts := s.append(op, w)
	s.remember(c, row.Key, ts)
	c.Replace(c.Get(row.Key), r.Doc, ts)
	return r.Doc, true, nil
}

func (s *Store) updateOp(c *collection, row table.Found, r *update.Result, u *update.Update) oplog.Op {
	deltas := s.log.Release().Deltas()
	var truncated []update.Truncation
	if r.Whole && deltas && !u.IsReplacement() {
		truncated = r.Describe(row.Doc)
	}
	id, _ := doc.Field(r.Doc, "_id")
	op := oplog.Op{Kind: oplog.Update, NS: c.ns, ID: id, Updated: r.Updated, Removed: r.Removed, Disambiguated: r.Disambiguated}
	if r.Whole {
		op.Kind, op.Doc = oplog.Replace, r.Doc
	} else if deltas {
		op.Truncated = truncations(truncated)
	}
	if c.images {
		op.Before, op.After = row.Doc, r.Doc
	}
	return op
}

func truncations(list []update.Truncation) []byte {
	b := doc.New()
	for i, t := range list {
		b.Open(doc.Index(i)).String("field", t.Field).Int32("newSize", t.NewSize).End()
	}
	return b.Bytes()
}

// upsert inserts the document that the filter's equalities and the update describe.
func (s *Store) upsert(n Name, f *query.Filter, u *update.Update, w Writer) (bsoncore.Value, bsoncore.Document, error) {
	base, err := update.Seed(f, u)
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	r, err := u.Apply(base, update.Context{Scope: s.scope(), Insert: true})
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	d, id, err := identity.Assign(r.Doc)
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	c, err := s.target(n, w)
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	return id, d, s.insert(c, d, id, w)
}

// Delete removes the matching documents, or only the first, and returns how many.
func (s *Store) Delete(n Name, f *query.Filter, one bool, w Writer) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.seen(n, w.Txn)
	if c == nil {
		return 0, nil
	}
	limit := 0
	if one {
		limit = 1
	}
	rows, err := c.Matching(f, w.Txn.overlayOf(c), limit)
	if err != nil {
		return 0, err
	}
	if err := c.freeAll(rows, w.Txn); err != nil {
		return 0, err
	}
	for _, row := range rows {
		s.delete(c, row, w)
	}
	return int64(len(rows)), nil
}

func (s *Store) delete(c *collection, row table.Found, w Writer) {
	id, _ := doc.Field(row.Doc, "_id")
	op := oplog.Op{Kind: oplog.Delete, NS: c.ns, ID: id}
	if c.images {
		op.Before = row.Doc
	}
	if w.Txn != nil {
		w.Txn.write(c, row.Key, nil, op)
		return
	}
	s.remember(c, row.Key, s.append(op, w))
	c.Remove(c.Get(row.Key))
}
