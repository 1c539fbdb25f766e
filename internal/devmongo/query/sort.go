package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Sort is a compiled sort specification. The nil Sort keeps the order.
type Sort struct {
	keys []sortKey
	// Natural is 1 or -1 for {$natural: ±1}, else 0.
	Natural int
}

type sortKey struct {
	path       path
	descending bool
}

// ParseSort compiles a sort document; an empty one gives nil.
func ParseSort(d bsoncore.Document) (*Sort, error) {
	if doc.Empty(d) {
		return nil, nil
	}
	s := &Sort{}
	for name, v := range doc.All(d) {
		n, ok := doc.Int(v)
		if !ok || n != 1 && n != -1 {
			return nil, wire.Errorf(wire.BadValue, "Unknown $sort order for key: %s, must be 1 or -1", name)
		}
		if name == "$natural" {
			s.Natural = int(n)
			continue
		}
		s.keys = append(s.keys, sortKey{path: parsePath(name), descending: n < 0})
	}
	return s, nil
}

// ByID reports whether the sort is {_id: 1} or {_id: -1}, and which.
func (s *Sort) ByID() (ascending, ok bool) {
	if s == nil || len(s.keys) != 1 || s.keys[0].path.String() != "_id" {
		return false, false
	}
	return !s.keys[0].descending, true
}

// Apply sorts documents in place, stably.
func (s *Sort) Apply(docs []bsoncore.Document) {
	if s == nil || len(s.keys) == 0 {
		return
	}
	type row struct {
		keys []bsoncore.Value
		doc  bsoncore.Document
	}
	rows := make([]row, len(docs))
	for i, d := range docs {
		rows[i].doc = d
		for _, k := range s.keys {
			rows[i].keys = append(rows[i].keys, k.value(d))
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		for i, k := range s.keys {
			c := Compare(a.keys[i], b.keys[i])
			if k.descending {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	for i := range rows {
		docs[i] = rows[i].doc
	}
}

// value is what a document sorts by: of several values the smallest, or the largest for a descending sort;
// a missing field sorts as null.
func (k sortKey) value(d []byte) bsoncore.Value {
	var best bsoncore.Value
	seen := false
	k.path.visit(d, func(v bsoncore.Value) bool {
		for _, item := range sortable(v) {
			if c := Compare(item, best); !seen || (c < 0) != k.descending && c != 0 {
				best, seen = item, true
			}
		}
		return false
	})
	return best
}

func sortable(v bsoncore.Value) []bsoncore.Value {
	switch {
	case v.Type == 0:
		return []bsoncore.Value{{Type: bsoncore.TypeNull}}
	case v.Type != bsoncore.TypeArray:
		return []bsoncore.Value{v}
	case doc.Empty(v.Data):
		return []bsoncore.Value{{Type: bsoncore.TypeUndefined}}
	default:
		return slices.Collect(doc.Values(v.Data))
	}
}
