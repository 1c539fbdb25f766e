package node

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// OnlyFields refuses fields of a statement that devmongo does not know.
func OnlyFields(d bsoncore.Document, command string, known ...string) error {
	r := Request{Name: command, Body: d}
	return r.Only(append(known, command)...)
}

// Filter reads a field that is a filter; nil is one that everything passes.
func Filter(d bsoncore.Document, name string) (*query.Filter, error) {
	v, ok := doc.Field(d, name)
	if !ok {
		return nil, nil
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, fault.New(fault.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'object'", name, doc.TypeName(v.Type))
	}
	if doc.Empty(v.Data) {
		return nil, nil
	}
	return query.Parse(v.Data)
}
