package query

import (
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
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

// Floor returns a value below which the field of a matching document cannot lie, when the filter
// compares it with $gt, $gte or equality.
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

// Equalities returns the top-level fields that the filter fixes by equality, in its order. An
// upsert begins its document with them.
func (f *Filter) Equalities() []Equality {
	if f == nil {
		return nil
	}
	return equalities(f.root, nil)
}

// An Equality is a path that a filter fixes to one value.
type Equality struct {
	Path  string
	Value bsoncore.Value
}

func equalities(n node, out []Equality) []Equality {
	switch n := n.(type) {
	case all:
		for _, child := range n {
			out = equalities(child, out)
		}
	case equals:
		out = append(out, Equality{Path: n.path.String(), Value: n.value})
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

// unsupported distinguishes an operator of MongoDB from an unknown one.
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

// node is one condition of a filter.
type node interface{ match(d []byte) bool }

// all matches when every condition does; without any it matches everything.
type all []node

func (n all) match(d []byte) bool {
	for _, child := range n {
		if !child.match(d) {
			return false
		}
	}
	return true
}

// either matches when one of the conditions does.
type either []node

func (n either) match(d []byte) bool {
	return slices.ContainsFunc(n, func(child node) bool { return child.match(d) })
}

type not struct{ node }

func (n not) match(d []byte) bool { return !n.node.match(d) }

// equals matches a value or an element of an array; null matches a missing field too.
type equals struct {
	path  path
	value bsoncore.Value
}

func (n equals) match(d []byte) bool {
	return n.path.leaves(d, func(v bsoncore.Value) bool { return equalOrMissing(v, n.value) })
}

func equalOrMissing(v, want bsoncore.Value) bool {
	if v.Type == 0 {
		return want.Type == bsoncore.TypeNull
	}
	return equal(v, want)
}

// among is $in: its values are sorted.
type among struct {
	path   path
	values []bsoncore.Value
}

func (n among) match(d []byte) bool {
	return n.path.leaves(d, func(v bsoncore.Value) bool {
		if v.Type == 0 {
			v.Type = bsoncore.TypeNull
		}
		_, found := slices.BinarySearchFunc(n.values, v, Compare)
		return found
	})
}

// compares is $gt, $gte, $lt and $lte: only values of the same type class compare, except with the
// smallest and the largest key.
type compares struct {
	path  path
	op    string
	value bsoncore.Value
}

func (n compares) match(d []byte) bool { return n.path.leaves(d, n.holds) }

func (n compares) holds(v bsoncore.Value) bool {
	if v.Type == 0 {
		if n.value.Type != bsoncore.TypeNull {
			return false
		}
		v.Type = bsoncore.TypeNull
	}
	open := n.value.Type == bsoncore.TypeMinKey || n.value.Type == bsoncore.TypeMaxKey
	if !open && class(v.Type) != class(n.value.Type) {
		return false
	}
	if isNaN(v) != isNaN(n.value) {
		return false
	}
	switch c := Compare(v, n.value); n.op {
	case "$gt":
		return c > 0
	case "$gte":
		return c >= 0
	case "$lt":
		return c < 0
	default:
		return c <= 0
	}
}

func isNaN(v bsoncore.Value) bool {
	if v.Type != bsoncore.TypeDouble {
		return false
	}
	f := v.Double()
	return f != f
}

type exists struct {
	path path
	want bool
}

func (n exists) match(d []byte) bool {
	found := n.path.visit(d, func(v bsoncore.Value) bool { return v.Type != 0 })
	return found == n.want
}

// path is a dotted path, split.
type path []string

func parsePath(s string) path { return strings.Split(s, ".") }

func (p path) String() string { return strings.Join(p, ".") }

// visit calls f with every value that the path reaches in the document: embedded documents are
// entered, of arrays every element that is a document, and the element that a numeric name points
// to. A path that ends nowhere yields the zero Value. visit stops when f returns true and returns
// what f returned last.
func (p path) visit(d []byte, f func(bsoncore.Value) bool) bool {
	v, ok := doc.Field(d, p[0])
	if !ok {
		return f(bsoncore.Value{})
	}
	return p[1:].descend(v, f)
}

func (p path) descend(v bsoncore.Value, f func(bsoncore.Value) bool) bool {
	if len(p) == 0 {
		return f(v)
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return p.visit(v.Data, f)
	case bsoncore.TypeArray:
		return p.elements(v.Data, f)
	default:
		return f(bsoncore.Value{})
	}
}

func (p path) elements(array []byte, f func(bsoncore.Value) bool) bool {
	if _, err := strconv.Atoi(p[0]); err == nil {
		if v, ok := doc.Field(array, p[0]); ok && p[1:].descend(v, f) {
			return true
		}
	}
	found := false
	for v := range doc.Values(array) {
		if v.Type != bsoncore.TypeEmbeddedDocument {
			continue
		}
		found = true
		if p.visit(v.Data, f) {
			return true
		}
	}
	return !found && f(bsoncore.Value{})
}

// leaves calls f like visit, and for a value that is an array with its elements first.
func (p path) leaves(d []byte, f func(bsoncore.Value) bool) bool {
	return p.visit(d, func(v bsoncore.Value) bool {
		if v.Type == bsoncore.TypeArray {
			for item := range doc.Values(v.Data) {
				if f(item) {
					return true
				}
			}
		}
		return f(v)
	})
}
