package store

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Query is a find.
type Query struct {
	Filter      *query.Filter
	Sort        *query.Sort
	Projection  *query.Projection
	Skip, Limit int64
	// From and Until bound the _id of a find that is sorted by it, From inclusive and Until
	// exclusive; zero is no bound.
	From, Until bsoncore.Value
	// AsOf is the cluster time of the read, within the past that the store remembers (see
	// Remembers); 0 is now. A transaction sees now.
	AsOf uint64
}

// Find returns the matching documents. They are the stored ones where there is no projection:
// callers must not change them.
func (s *Store) Find(n Name, q Query, t *Txn) ([]bsoncore.Document, error) {
	docs, examined, err := s.collect(n, q, t)
	s.examined.Add(int64(examined))
	if err != nil || q.Projection == nil {
		return docs, err
	}
	for i := range docs {
		docs[i] = q.Projection.Apply(docs[i])
	}
	return docs, nil
}

func (s *Store) collect(n Name, q Query, t *Txn) (docs []bsoncore.Document, examined int, err error) {
	ascending, byID := q.Sort.ByID()
	if byID {
		s.warm(n)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.seen(n, t)
	if c == nil {
		return nil, 0, s.isView(n)
	}
	if c.foldCase && q.Filter != nil {
		if _, named := q.Filter.IDs(); !named {
			return nil, 0, wire.Errorf(wire.CommandNotSupported, "devmongo compares nothing but _id under a collation")
		}
	}
	over := t.overlayOf(c)
	if t == nil && q.AsOf > 0 {
		over = s.asOf(c, q.AsOf)
	}
	if _, named := q.Filter.IDs(); byID && !named {
		limit := q.Limit
		if limit > 0 {
			limit += q.Skip
		}
		docs, examined, err = c.ordered(q, over, ascending, limit)
		return q.page(docs), examined, err
	}
	limit := 0
	if q.Sort == nil && q.Limit > 0 {
		limit = int(q.Skip + q.Limit)
	}
	rows, examined, err := c.matching(q.Filter, over, limit)
	if err != nil {
		return nil, examined, err
	}
	docs = make([]bsoncore.Document, len(rows))
	for i, r := range rows {
		docs[i] = r.doc
	}
	if q.Sort != nil && q.Sort.Natural < 0 {
		slices.Reverse(docs)
	}
	q.Sort.Apply(docs)
	return q.page(docs), examined, nil
}

func (q Query) page(docs []bsoncore.Document) []bsoncore.Document {
	docs = docs[min(q.Skip, int64(len(docs))):]
	if q.Limit > 0 {
		docs = docs[:min(q.Limit, int64(len(docs)))]
	}
	return docs
}

// Examined is how many documents all finds have looked at. Counting a whole collection looks at
// none.
func (s *Store) Examined() int64 { return s.examined.Load() }

// Count counts the matching documents.
func (s *Store) Count(n Name, q Query, t *Txn) (int64, error) {
	if q.Filter == nil && t == nil && q.AsOf == 0 {
		c, ok := s.Collection(n)
		if !ok {
			s.mu.RLock()
			defer s.mu.RUnlock()
			return 0, s.isView(n)
		}
		return q.total(c.Count), nil
	}
	docs, examined, err := s.collect(n, q, t)
	if q.Filter != nil {
		s.examined.Add(int64(examined))
	}
	return int64(len(docs)), err
}

func (q Query) total(n int64) int64 {
	n = max(0, n-q.Skip)
	if q.Limit > 0 {
		n = min(n, q.Limit)
	}
	return n
}

// warm sorts the collection by _id once, so that the pages of an ordered scan need not.
func (s *Store) warm(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(n); c != nil {
		c.sort()
	}
}
