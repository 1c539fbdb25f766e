package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

func parsePipeline(stages []byte) (*Update, error) {
	u := &Update{pipeline: []bsoncore.Document{}}
	for stage := range doc.Values(stages) {
		name, arg, ok := doc.First(stage.Data)
		if stage.Type != bsoncore.TypeEmbeddedDocument || !ok {
			return nil, wire.Errorf(wire.TypeMismatch, "Each element of the 'pipeline' array must be an object")
		}
		switch name {
		case "$set", "$addFields":
			if arg.Type != bsoncore.TypeEmbeddedDocument || doc.Empty(arg.Data) {
				return nil, wire.Errorf(40272, "%s specification stage must be an object, got %s", name, doc.TypeName(arg.Type))
			}
			u.pipeline = append(u.pipeline, arg.Data)
		case "$unset", "$project", "$replaceRoot", "$replaceWith":
			return nil, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the stage %s in an update", name)
		default:
			return nil, wire.Errorf(wire.InvalidOptions, "%s is not allowed to be used within an update", name)
		}
	}
	if len(u.pipeline) == 0 {
		return nil, wire.Errorf(wire.FailedToParse, "the update pipeline is empty")
	}
	return u, nil
}

func (u *Update) runPipeline(d bsoncore.Document, c UpdateContext) (bsoncore.Document, error) {
	for _, spec := range u.pipeline {
		root := newTree(d)
		if err := setFields(root, nil, spec, d, c.Scope); err != nil {
			return nil, err
		}
		d = root.current().Data
	}
	return d, nil
}

// setFields sets the fields that a $set names, below prefix; every expression sees the stage's input d.
func setFields(root *updateTree, prefix []string, spec []byte, d bsoncore.Document, s Scope) error {
	for name, v := range doc.All(spec) {
		if strings.HasPrefix(name, "$") {
			return wire.Errorf(16410, "FieldPath field names may not start with '$'.")
		}
		at := append(append([]string(nil), prefix...), strings.Split(name, ".")...)
		if len(at) > maxPath {
			return wire.Errorf(wire.Overflow, "the path has more than %d names", maxPath)
		}
		if first, _, ok := doc.First(v.Data); v.Type == bsoncore.TypeEmbeddedDocument && ok && !strings.HasPrefix(first, "$") {
			if err := setFields(root, at, v.Data, d, s); err != nil {
				return err
			}
			continue
		}
		value, err := Evaluate(v, d, s)
		if err != nil {
			return err
		}
		setPath(root, at, value)
	}
	return nil
}

// setPath sets a value in the documents that a path leads to: what is no document becomes one, of an array
// every element.
func setPath(at *updateTree, path []string, v bsoncore.Value) {
	if at.isArray() {
		at.expand()
		for _, k := range at.kids {
			setPath(k, path, v)
		}
		return
	}
	if at.value.Type != bsoncore.TypeEmbeddedDocument {
		at.set(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc.New().Bytes()})
	}
	kid := at.child(path[0])
	switch {
	case len(path) == 1 && v.Type == 0:
		at.remove(path[0])
	case kid == nil && len(path) == 1:
		at.add(path[0], v)
	case len(path) == 1:
		kid.set(v)
	case kid == nil:
		setPath(at.add(path[0], bsoncore.Value{Type: bsoncore.TypeNull}), path[1:], v)
	default:
		setPath(kid, path[1:], v)
	}
}
