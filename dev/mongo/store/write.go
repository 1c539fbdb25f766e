package store

import (
	"crypto/rand"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Insert stores one document, with an _id in front. The document is copied.
func (s *Store) Insert(n Name, d bsoncore.Document, w Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.target(n, w)
	if err != nil {
		return err
	}
	d, id, err := assignID(d)
	if err != nil {
		return err
	}
	if len(d) > MaxDocument {
		return wire.Errorf(wire.BadValue, "object to insert too large. size in bytes: %d, max size: %d", len(d), MaxDocument)
	}
	return s.insert(c, d, id, w)
}

func (s *Store) insert(c *collection, d bsoncore.Document, id bsoncore.Value, w Writer) error {
	key, err := c.key(id)
	if err != nil {
		return err
	}
	if err := c.room(d); err != nil {
		return err
	}
	if err := c.free(key, w.Txn); err != nil {
		return err
	}
	if _, taken := c.see(key, w.Txn.overlayOf(c)); taken {
		return duplicateKey(c.ns.String(), id)
	}
	op := oplog.Op{Kind: oplog.Insert, NS: c.ns, ID: id, Doc: d}
	if w.Txn != nil {
		w.Txn.write(c, key, d, op)
		return nil
	}
	ts := s.append(op, w)
	s.remember(c, key, ts)
	c.table.insert(key, d, ts)
	return nil
}

func (s *Store) append(op oplog.Op, w Writer) uint64 {
	op.Session, op.Stmt = w.Session, w.Stmt
	return s.log.Append(op)
}

// Change is an update statement.
type Change struct {
	Filter *query.Filter
	Update *query.Update
	Multi  bool
	Upsert bool
}

// Update changes the matching documents, or inserts one.
func (s *Store) Update(n Name, ch Change, w Writer) (WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out WriteResult
	limit := 1
	if ch.Multi {
		limit = 0
	}
	c := s.seen(n, w.Txn)
	var rows []foundRow
	if c != nil {
		var err error
		if rows, _, err = c.matching(ch.Filter, w.Txn.overlayOf(c), limit); err != nil {
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
		_, changed, err := s.change(c, row, ch.Filter, ch.Update, w)
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

// change applies an update to one document, which the filter has found, and logs it.
func (s *Store) change(c *collection, row foundRow, f *query.Filter, u *query.Update, w Writer) (bsoncore.Document, bool, error) {
	r, err := u.Apply(row.doc, query.UpdateContext{Scope: s.scope(), Filter: f, Deltas: s.log.Release().Deltas()})
	if err != nil || !r.Changed {
		return row.doc, false, err
	}
	if len(r.Doc) > MaxDocument {
		return nil, false, wire.Errorf(17419, "Resulting document after update is larger than %d", MaxDocument)
	}
	if err := s.capped(c, row.doc, r.Doc); err != nil {
		return nil, false, err
	}
	op := s.updateOp(c, row, &r, u)
	if w.Txn != nil {
		w.Txn.write(c, row.key, r.Doc, op)
		return r.Doc, true, nil
	}
	ts := s.append(op, w)
	s.remember(c, row.key, ts)
	c.replace(c.docs[row.key], r.Doc, ts)
	return r.Doc, true, nil
}

func (s *Store) updateOp(c *collection, row foundRow, r *query.UpdateResult, u *query.Update) oplog.Op {
	deltas := s.log.Release().Deltas()
	var truncated []query.Truncation
	if r.Whole && deltas && !u.IsReplacement() {
		truncated = r.Describe(row.doc)
	}
	id, _ := doc.Field(r.Doc, "_id")
	op := oplog.Op{Kind: oplog.Update, NS: c.ns, ID: id, Updated: r.Updated, Removed: r.Removed, Disambiguated: r.Disambiguated}
	if r.Whole {
		op.Kind = oplog.Replace
		op.Doc = r.Doc
	} else if deltas {
		op.Truncated = truncations(truncated)
	}
	if c.images {
		op.Before = row.doc
		op.After = r.Doc
	}
	return op
}

func truncations(list []query.Truncation) []byte {
	b := doc.New()
	for i, t := range list {
		b.Open(doc.Index(i)).String("field", t.Field).Int32("newSize", t.NewSize).End()
	}
	return b.Bytes()
}

// upsert inserts the document that the filter's equalities and the update describe.
func (s *Store) upsert(n Name, f *query.Filter, u *query.Update, w Writer) (bsoncore.Value, bsoncore.Document, error) {
	base, err := query.UpsertSeed(f, u)
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	r, err := u.Apply(base, query.UpdateContext{Scope: s.scope(), Insert: true})
	if err != nil {
		return bsoncore.Value{}, nil, err
	}
	d, id, err := assignID(r.Doc)
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
		return 0, s.isView(n)
	}
	limit := 0
	if one {
		limit = 1
	}
	rows, _, err := c.matching(f, w.Txn.overlayOf(c), limit)
	if err != nil {
		return 0, err
	}
	if err := c.freeAll(rows, w.Txn); err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := s.capped(c, row.doc, nil); err != nil {
			return 0, err
		}
		s.delete(c, row, w)
	}
	return int64(len(rows)), nil
}

func (s *Store) delete(c *collection, row foundRow, w Writer) {
	id, _ := doc.Field(row.doc, "_id")
	op := oplog.Op{Kind: oplog.Delete, NS: c.ns, ID: id}
	if c.images {
		op.Before = row.doc
	}
	if w.Txn != nil {
		w.Txn.write(c, row.key, nil, op)
		return
	}
	s.remember(c, row.key, s.append(op, w))
	c.remove(c.docs[row.key])
}

// Modification is a findAndModify: Update is nil for a removal.
type Modification struct {
	Filter *query.Filter
	Sort   *query.Sort
	Update *query.Update
	New    bool // return the document after the change
	Upsert bool
}

// Modified is the result of a findAndModify. Value is nil when there is no document to return.
type Modified struct {
	Value    bsoncore.Document
	Found    bool
	Upserted *bsoncore.Value
}

// Modify finds one document, the first by the sort, and changes or removes it.
func (s *Store) Modify(n Name, m Modification, w Writer) (Modified, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row, err := s.first(n, m, w.Txn)
	if err != nil {
		return Modified{}, err
	}
	if row == nil {
		return s.modifyNone(n, m, w)
	}
	c := s.seen(n, w.Txn)
	if err := c.freeAll([]foundRow{*row}, w.Txn); err != nil {
		return Modified{}, err
	}
	if m.Update == nil {
		if err := s.capped(c, row.doc, nil); err != nil {
			return Modified{}, err
		}
		s.delete(c, *row, w)
		return Modified{Value: row.doc, Found: true}, nil
	}
	after, _, err := s.change(c, *row, m.Filter, m.Update, w)
	if err != nil {
		return Modified{}, err
	}
	if m.New {
		return Modified{Value: after, Found: true}, nil
	}
	return Modified{Value: row.doc, Found: true}, nil
}

func (s *Store) modifyNone(n Name, m Modification, w Writer) (Modified, error) {
	if m.Update == nil || !m.Upsert {
		return Modified{}, nil
	}
	id, d, err := s.upsert(n, m.Filter, m.Update, w)
	if err != nil {
		return Modified{}, err
	}
	out := Modified{Upserted: &id}
	if m.New {
		out.Value = d
	}
	return out, nil
}

// first is the matching document that sorts first, nil when there is none.
func (s *Store) first(n Name, m Modification, t *Txn) (*foundRow, error) {
	c := s.seen(n, t)
	if c == nil {
		return nil, nil
	}
	limit := 1
	if m.Sort != nil {
		limit = 0
	}
	rows, _, err := c.matching(m.Filter, t.overlayOf(c), limit)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	docs := make([]bsoncore.Document, len(rows))
	for i, r := range rows {
		docs[i] = r.doc
	}
	m.Sort.Apply(docs)
	for i := range rows {
		if &rows[i].doc[0] == &docs[0][0] {
			return &rows[i], nil
		}
	}
	return &rows[0], nil
}

// assignID copies a document with its _id in front, and gives it one when it has none.
func assignID(d bsoncore.Document) (bsoncore.Document, bsoncore.Value, error) {
	id, own := doc.Field(d, "_id")
	if !own {
		id = bsoncore.Value{Type: bsoncore.TypeObjectID, Data: newObjectID()}
	}
	switch id.Type {
	case bsoncore.TypeArray, bsoncore.TypeRegex, bsoncore.TypeUndefined:
		return nil, id, wire.Errorf(53, "The '_id' value cannot be of type %s", doc.TypeName(id.Type))
	default:
	}
	if name, _, _ := doc.First(d); own && name == "_id" {
		d = doc.Clone(d)
	} else {
		b := doc.New().Value("_id", id)
		for name, v := range doc.All(d) {
			if name != "_id" {
				b.Value(name, v)
			}
		}
		d = b.Document()
	}
	id, _ = doc.Field(d, "_id")
	return d, id, nil
}

// duplicateKey is the error of a second document with the same _id.
func duplicateKey(namespace string, id bsoncore.Value) error {
	e := wire.Errorf(wire.DuplicateKey, "E11000 duplicate key error collection: %s index: _id_ dup key: { %s }", namespace, doc.Element("_id", id))
	extra := doc.New().Open("keyPattern").Int32("_id", 1).End().Open("keyValue").Value("_id", id).End().Document()
	e.Extra = extra[4 : len(extra)-1]
	return e
}

// NewUUID makes a random UUID.
func NewUUID() *[16]byte {
	var u [16]byte
	_, _ = rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return &u
}

func newObjectID() []byte {
	id := make([]byte, 12)
	_, _ = rand.Read(id)
	return id
}
