package store

import (
	"crypto/rand"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// assignID copies a document with its _id in front, and gives it one when it has none.
func assignID(d bsoncore.Document) (bsoncore.Document, bsoncore.Value, error) {
	id, own := doc.Field(d, "_id")
	if !own {
		id = bsoncore.Value{Type: bsoncore.TypeObjectID, Data: newObjectID()}
	}
	switch id.Type {
	case bsoncore.TypeArray, bsoncore.TypeRegex, bsoncore.TypeUndefined:
		return nil, id, wire.Errorf(53, "The '_id' value cannot be of type %s", doc.TypeName(id.Type))
	default:
	}
	if name, _, _ := doc.First(d); own && name == "_id" {
		d = doc.Clone(d)
	} else {
		b := doc.New().Value("_id", id)
		for name, v := range doc.All(d) {
			if name != "_id" {
				b.Value(name, v)
			}
		}
		d = b.Document()
	}
	id, _ = doc.Field(d, "_id")
	return d, id, nil
}

// duplicateKey is the error of a second document with the same _id.
func duplicateKey(namespace string, id bsoncore.Value) error {
	e := wire.Errorf(wire.DuplicateKey, "E11000 duplicate key error collection: %s index: _id_ dup key: { %s }", namespace, doc.Element("_id", id))
	extra := doc.New().Open("keyPattern").Int32("_id", 1).End().Open("keyValue").Value("_id", id).End().Document()
	e.Extra = extra[4 : len(extra)-1]
	return e
}

// NewUUID makes a random UUID.
func NewUUID() *[16]byte {
	var u [16]byte
	_, _ = rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return &u
}

func newObjectID() []byte {
	id := make([]byte, 12)
	_, _ = rand.Read(id)
	return id
}
