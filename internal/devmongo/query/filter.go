package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Filter is a compiled query. The nil Filter matches every document.
type Filter struct {
	root   node
	fields []string
}

// ParseFilter compiles a query document.
func ParseFilter(d bsoncore.Document) (*Filter, error) {
	p := &parser{}
	root, err := p.document(d)
	if err != nil {
		return nil, err
	}
	slices.Sort(p.fields)
	return &Filter{root: root, fields: slices.Compact(p.fields)}, nil
}

// Match reports whether the document satisfies the filter.
func (f *Filter) Match(d []byte) bool { return f == nil || f.root.match(d) }

// Fields are the dotted paths that the filter reads, sorted.
func (f *Filter) Fields() []string {
	if f == nil {
		return nil
	}
	return f.fields
}

// IDs returns the only values of _id that can match, when the filter names them by equality or $in.
func (f *Filter) IDs() ([]bsoncore.Value, bool) {
	if f == nil {
		return nil, false
	}
	return ids(f.root)
}

func ids(n node) ([]bsoncore.Value, bool) {
	switch n := n.(type) {
	case all:
		for _, child := range n {
			if list, ok := ids(child); ok {
				return list, true
			}
		}
	case equals:
		if len(n.path) == 1 && n.path[0] == "_id" {
			return []bsoncore.Value{n.value}, true
		}
	case among:
		if len(n.path) == 1 && n.path[0] == "_id" {
			return n.values, true
		}
	}
	return nil, false
}

// Floor returns a value below which the field of a matching document cannot lie, when the filter compares it with
// $gt, $gte or equality.
func (f *Filter) Floor(field string) (bsoncore.Value, bool) {
	if f == nil {
		return bsoncore.Value{}, false
	}
	return floor(f.root, field)
}

func floor(n node, field string) (bsoncore.Value, bool) {
	switch n := n.(type) {
	case all:
		for _, child := range n {
			if v, ok := floor(child, field); ok {
				return v, true
			}
		}
	case compares:
		if n.path.String() == field && (n.op == "$gt" || n.op == "$gte") {
			return n.value, true
		}
	case equals:
		if n.path.String() == field {
			return n.value, true
		}
	}
	return bsoncore.Value{}, false
}

// Equalities returns the top-level fields that the filter fixes by equality, in its order: what an upsert
// begins its document with.
func (f *Filter) Equalities() []equalField {
	if f == nil {
		return nil
	}
	return equalities(f.root, nil)
}

// equalField is a path that a filter fixes to one value.
type equalField struct {
	path  string
	value bsoncore.Value
}

func equalities(n node, out []equalField) []equalField {
	switch n := n.(type) {
	case all:
		for _, child := range n {
			out = equalities(child, out)
		}
	case equals:
		out = append(out, equalField{path: n.path.String(), value: n.value})
	}
	return out
}

type parser struct{ fields []string }

func (p *parser) document(d []byte) (node, error) {
	var nodes all
	for name, v := range doc.All(d) {
		n, err := p.top(name, v)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func (p *parser) top(name string, v bsoncore.Value) (node, error) {
	switch {
	case name == "$and" || name == "$or" || name == "$nor":
		return p.logical(name, v)
	case name == "$comment":
		return all(nil), nil
	case strings.HasPrefix(name, "$"):
		return nil, unsupported(name, "top level operator")
	default:
		return p.field(name, v)
	}
}

func (p *parser) logical(name string, v bsoncore.Value) (node, error) {
	if v.Type != bsoncore.TypeArray || doc.Empty(v.Data) {
		return nil, wire.Errorf(wire.BadValue, "%s must be a nonempty array", name)
	}
	var nodes []node
	for item := range doc.Values(v.Data) {
		if item.Type != bsoncore.TypeEmbeddedDocument {
			return nil, wire.Errorf(wire.BadValue, "$or/$and/$nor entries need to be full objects")
		}
		n, err := p.document(item.Data)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	switch name {
	case "$and":
		return all(nodes), nil
	case "$or":
		return either(nodes), nil
	default:
		return not{either(nodes)}, nil
	}
}

// field compiles {path: value} and {path: {$op: …}}.
func (p *parser) field(name string, v bsoncore.Value) (node, error) {
	p.fields = append(p.fields, name)
	at := parsePath(name)
	if !isOperators(v) {
		return equality(at, v)
	}
	return p.operators(at, v.Data)
}

func isOperators(v bsoncore.Value) bool {
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return false
	}
	name, _, ok := doc.First(v.Data)
	return ok && strings.HasPrefix(name, "$") && name != "$ref" && name != "$id" && name != "$db"
}

func (p *parser) operators(at path, d []byte) (node, error) {
	var nodes all
	for op, v := range doc.All(d) {
		n, err := p.operator(at, op, v)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return nodes, nil
}

func (p *parser) operator(at path, op string, v bsoncore.Value) (node, error) {
	switch op {
	case "$eq":
		return equality(at, v)
	case "$ne":
		n, err := equality(at, v)
		return not{n}, err
	case "$gt", "$gte", "$lt", "$lte":
		if v.Type == bsoncore.TypeRegex {
			return nil, wire.Errorf(wire.BadValue, "Can't have RegEx as arg to predicate over field '%s'.", at)
		}
		return compares{path: at, op: op, value: v}, nil
	case "$in", "$nin":
		return membership(at, op, v)
	case "$exists":
		return exists{path: at, want: doc.Truth(v)}, nil
	case "$not":
		if !isOperators(v) {
			return nil, wire.Errorf(wire.BadValue, "$not needs a regex or a document")
		}
		n, err := p.operators(at, v.Data)
		return not{n}, err
	default:
		return nil, unsupported(op, "operator")
	}
}

func equality(at path, v bsoncore.Value) (node, error) {
	if v.Type == bsoncore.TypeRegex {
		return nil, unsupported("$regex", "operator")
	}
	return equals{path: at, value: v}, nil
}

func membership(at path, op string, v bsoncore.Value) (node, error) {
	if v.Type != bsoncore.TypeArray {
		return nil, wire.Errorf(wire.BadValue, "%s needs an array", op)
	}
	n := among{path: at}
	for item := range doc.Values(v.Data) {
		if item.Type == bsoncore.TypeRegex {
			return nil, unsupported("$regex", "operator")
		}
		n.values = append(n.values, item)
	}
	slices.SortFunc(n.values, Compare)
	n.values = slices.CompactFunc(n.values, equal)
	if op == "$nin" {
		return not{n}, nil
	}
	return n, nil
}

// unsupported tells an operator that MongoDB knows from one that it does not.
func unsupported(op, kind string) error {
	known := []string{
		"$expr", "$where", "$text", "$jsonSchema", "$alwaysTrue", "$alwaysFalse", "$sampleRate",
		"$regex", "$options", "$mod", "$type", "$size", "$all", "$elemMatch", "$geoWithin", "$geoIntersects", "$near",
		"$nearSphere", "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear",
	}
	if slices.Contains(known, op) {
		return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the query operator %s", op)
	}
	return wire.Errorf(wire.BadValue, "unknown %s: %s", kind, op)
}
