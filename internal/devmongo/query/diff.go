package query

import (
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// Truncation is an array that lost elements at its end.
type Truncation struct {
	Field   string
	NewSize int32
}

// Describe turns a document that a pipeline computed into a list of changed fields, as servers since 5.0 log
// it; it returns the arrays that became shorter.
func (r *UpdateResult) Describe(old bsoncore.Document) []Truncation {
	d := &diff{updated: doc.New()}
	d.documents(nil, old, r.Doc)
	r.Whole, r.Updated, r.Removed = false, d.updated.Document(), d.removed
	if d.ambiguous != nil {
		r.Disambiguated = d.ambiguous.Document()
	}
	return d.truncated
}

type diff struct {
	updated   *doc.Builder
	removed   []string
	truncated []Truncation
	ambiguous *doc.Builder
}

// step is one part of a path: a field's name or an array's index.
type step struct {
	name  string
	index bool
}

func (d *diff) documents(at []step, old, next []byte) {
	for name, v := range doc.All(next) {
		path := append(slices.Clone(at), step{name: name})
		if before, ok := doc.Field(old, name); ok {
			d.values(path, before, v)
		} else {
			d.updated.Value(d.path(path), v)
		}
	}
	for name := range doc.All(old) {
		if _, ok := doc.Field(next, name); !ok {
			d.removed = append(d.removed, d.path(append(slices.Clone(at), step{name: name})))
		}
	}
}

func (d *diff) values(at []step, old, next bsoncore.Value) {
	switch {
	case Same(old, next):
	case old.Type == bsoncore.TypeEmbeddedDocument && next.Type == bsoncore.TypeEmbeddedDocument:
		d.documents(at, old.Data, next.Data)
	case old.Type == bsoncore.TypeArray && next.Type == bsoncore.TypeArray:
		d.arrays(at, old.Data, next.Data)
	default:
		d.updated.Value(d.path(at), next)
	}
}

func (d *diff) arrays(at []step, old, next []byte) {
	before, after := slices.Collect(doc.Values(old)), slices.Collect(doc.Values(next))
	for i, v := range after {
		path := append(slices.Clone(at), step{name: strconv.Itoa(i), index: true})
		if i < len(before) {
			d.values(path, before[i], v)
		} else {
			d.updated.Value(d.path(path), v)
		}
	}
	if len(after) < len(before) {
		d.truncated = append(d.truncated, Truncation{Field: d.path(at), NewSize: int32(len(after))})
	}
}

// path joins the steps; a name that could be taken for something else is explained.
func (d *diff) path(at []step) string {
	var names []string
	ambiguous := false
	for _, s := range at {
		names = append(names, s.name)
		ambiguous = ambiguous || !s.index && (isIndex(s.name) || strings.Contains(s.name, "."))
	}
	joined := strings.Join(names, ".")
	if ambiguous {
		d.explain(joined, at)
	}
	return joined
}

func (d *diff) explain(joined string, at []step) {
	if d.ambiguous == nil {
		d.ambiguous = doc.New()
	}
	d.ambiguous.OpenArray(joined)
	for i, s := range at {
		if n, err := strconv.Atoi(s.name); s.index && err == nil {
			d.ambiguous.Int32(doc.Index(i), int32(n))
		} else {
			d.ambiguous.String(doc.Index(i), s.name)
		}
	}
	d.ambiguous.End()
}
