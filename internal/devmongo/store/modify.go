package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/query"
)

// Modification is a findAndModify: Update is nil for a removal.
type Modification struct {
	Filter *query.Filter
	Sort   *query.Sort
	Update *query.Update
	New    bool // return the document after the change
	Upsert bool
}

// Modified is what a findAndModify did. Value is nil when there is no document to return.
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
		s.delete(c, *row, w)
		return Modified{Value: row.doc, Found: true}, nil
	}
	after, _, err := s.change(c, *row, m.Update, w)
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
	rows, err := c.matching(m.Filter, t.overlayOf(c), limit)
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
