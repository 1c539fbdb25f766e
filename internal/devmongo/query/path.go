package query

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// path is a dotted path, split.
type path []string

func parsePath(s string) path { return strings.Split(s, ".") }

func (p path) String() string { return strings.Join(p, ".") }

// visit calls f with every value that the path reaches in the document: embedded documents are entered, of
// arrays every element that is a document, and the element that a numeric name points to. A path that ends
// nowhere yields the zero Value. visit stops when f returns true and returns what f returned last.
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
