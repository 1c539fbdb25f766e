package devmongo

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// onlyFields refuses fields of a statement that devmongo does not know.
func onlyFields(d bsoncore.Document, command string, known ...string) error {
	r := request{name: command, body: d}
	return r.only(append(known, command)...)
}

// filterField reads a field that is a filter; nil is one that everything passes.
func filterField(d bsoncore.Document, name string) (*query.Filter, error) {
	v, ok := doc.Field(d, name)
	if !ok {
		return nil, nil
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, wire.Errorf(wire.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'object'", name, doc.TypeName(v.Type))
	}
	if doc.Empty(v.Data) {
		return nil, nil
	}
	return query.ParseFilter(v.Data)
}
