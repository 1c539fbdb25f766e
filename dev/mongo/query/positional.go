package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// isPositional reports whether a part of a path means elements of an array: $, $[] and
// $[identifier].
func isPositional(part string) bool {
	return part == "$" || strings.HasPrefix(part, "$[") && strings.HasSuffix(part, "]")
}

// parseArrayFilters compiles the statement's arrayFilters. Each must be used by a path, and each
// identifier of a path must have one.
func (u *Update) parseArrayFilters(list bsoncore.Value) error {
	u.arrayFilters = make(map[string]*Filter)
	if list.Type != 0 {
		for v := range doc.Values(list.Data) {
			name, _, ok := doc.First(v.Data)
			if v.Type != bsoncore.TypeEmbeddedDocument || !ok {
				return wire.Errorf(wire.FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters")
			}
			id, _, _ := strings.Cut(name, ".")
			if u.arrayFilters[id] != nil {
				return wire.Errorf(wire.FailedToParse, "Found multiple array filters with the same top-level field name %s", id)
			}
			f, err := ParseFilter(v.Data)
			if err != nil {
				return err
			}
			u.arrayFilters[id] = f
		}
	}
	used := make(map[string]bool)
	for _, m := range u.modifiers {
		for _, part := range m.path {
			id := identifier(part)
			if id != "" && u.arrayFilters[id] == nil {
				return wire.Errorf(wire.BadValue, "No array filter found for identifier '%s' in path '%s'", id, m)
			}
			used[id] = true
		}
	}
	for id := range u.arrayFilters {
		if !used[id] {
			return wire.Errorf(wire.FailedToParse, "The array filter for identifier '%s' was not used in the update", id)
		}
	}
	return nil
}

// identifier returns the name of an array filter in $[name], "" for any other part.
func identifier(part string) string {
	if !isPositional(part) || part == "$" {
		return ""
	}
	return part[2 : len(part)-1]
}

// concrete returns the modifier with indexes in place of positional parts: one modifier for each
// element. Later modifiers see the changes of earlier ones.
func (m *modification) concrete(u *Update, one modifier) ([]modifier, error) {
	i := slices.IndexFunc(one.path, isPositional)
	if i < 0 {
		return []modifier{one}, nil
	}
	at := m.root.find(one.path[:i])
	switch {
	case at == nil:
		return nil, wire.Errorf(wire.BadValue, "The path '%s' must exist in the document in order to apply array updates.", strings.Join(one.path[:i], "."))
	case !at.isArray():
		return nil, wire.Errorf(wire.BadValue, "Cannot apply array updates to non-array element %s", doc.Element(at.name, at.current()))
	}
	indexes, err := m.elements(u, one, i, slices.Collect(doc.Values(at.current().Data)))
	if err != nil {
		return nil, err
	}
	var all []modifier
	for _, index := range indexes {
		next := one
		next.path = slices.Clone(one.path)
		next.path[i] = doc.Index(index)
		deeper, err := m.concrete(u, next)
		if err != nil {
			return nil, err
		}
		all = append(all, deeper...)
	}
	return all, nil
}

// elements returns the indexes of the elements that part i of a path means.
func (m *modification) elements(u *Update, one modifier, i int, list []bsoncore.Value) (indexes []int, err error) {
	part := one.path[i]
	if part == "$" {
		index, ok := m.context.Filter.position(m.old, one.path[:i], list)
		if !ok {
			return nil, wire.Errorf(wire.BadValue, "The positional operator did not find the match needed from the query.")
		}
		return []int{index}, nil
	}
	f := u.arrayFilters[identifier(part)] // nil for $[]: all of them
	for index, v := range list {
		if f.Match(doc.New().Value(identifier(part), v).Bytes()) {
			indexes = append(indexes, index)
		}
	}
	return indexes, nil
}

// position returns the index of the first element with which alone, in place of the whole array,
// the document matches as well. Only a filter that reads the array has one.
func (f *Filter) position(d bsoncore.Document, path []string, list []bsoncore.Value) (index int, ok bool) {
	name := strings.Join(path, ".")
	if !slices.ContainsFunc(f.Fields(), func(field string) bool { return field == name || strings.HasPrefix(field, name+".") }) {
		return 0, false
	}
	for i, v := range list {
		root := newTree(d)
		at := root.find(path)
		if at == nil {
			return 0, false
		}
		at.set(Array([]bsoncore.Value{v}))
		if f.Match(root.current().Data) {
			return i, true
		}
	}
	return 0, false
}

// find returns the value at a path of field names and element indexes; nil if there is none.
func (t *updateTree) find(path []string) *updateTree {
	for _, part := range path {
		if t == nil || !t.container() {
			return nil
		}
		t = t.child(part)
	}
	return t
}
