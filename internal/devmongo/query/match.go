package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

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

// compares is $gt, $gte, $lt and $lte: only values of the same type class compare, except with the smallest and
// the largest key.
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
