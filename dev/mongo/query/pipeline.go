package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// An updateStage is one stage of an update's pipeline: exactly one of its parts is set.
type updateStage struct {
	set   bsoncore.Document // $set
	unset []string          // $unset
	root  bsoncore.Value    // $replaceWith
}

func parsePipeline(stages []byte) (*Update, error) {
	u := &Update{pipeline: []updateStage{}}
	for stage := range doc.Values(stages) {
		name, arg, ok := doc.First(stage.Data)
		if stage.Type != bsoncore.TypeEmbeddedDocument || !ok {
			return nil, wire.Errorf(wire.TypeMismatch, "Each element of the 'pipeline' array must be an object")
		}
		parsed, err := parseUpdateStage(name, arg)
		if err != nil {
			return nil, err
		}
		u.pipeline = append(u.pipeline, parsed)
	}
	if len(u.pipeline) == 0 {
		return nil, wire.Errorf(wire.FailedToParse, "the update pipeline is empty")
	}
	return u, nil
}

func parseUpdateStage(name string, arg bsoncore.Value) (updateStage, error) {
	switch name {
	case "$set", "$addFields":
		if arg.Type != bsoncore.TypeEmbeddedDocument || doc.Empty(arg.Data) {
			return updateStage{}, wire.Errorf(40272, "%s specification stage must be an object, got %s", name, doc.TypeName(arg.Type))
		}
		return updateStage{set: arg.Data}, nil
	case "$unset":
		return parseUnset(arg)
	case "$replaceWith":
		return updateStage{root: arg}, nil
	case "$replaceRoot":
		root, ok := doc.Field(arg.Data, "newRoot")
		if arg.Type != bsoncore.TypeEmbeddedDocument || !ok {
			return updateStage{}, wire.Errorf(40231, "no newRoot specified for the $replaceRoot stage")
		}
		return updateStage{root: root}, nil
	case "$project":
		return updateStage{}, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the stage %s in an update", name)
	default:
		return updateStage{}, wire.Errorf(wire.InvalidOptions, "%s is not allowed to be used within an update", name)
	}
}

func parseUnset(arg bsoncore.Value) (updateStage, error) {
	fields := []bsoncore.Value{arg}
	if arg.Type == bsoncore.TypeArray {
		fields = nil
		for v := range doc.Values(arg.Data) {
			fields = append(fields, v)
		}
	}
	var s updateStage
	for _, v := range fields {
		field, ok := v.StringValueOK()
		if !ok {
			return s, wire.Errorf(31120, "$unset specification must be a string or an array containing only string values")
		}
		s.unset = append(s.unset, field)
	}
	if len(s.unset) == 0 {
		return s, wire.Errorf(31119, "$unset specification must be a string or an array with at least one field")
	}
	return s, nil
}

// runPipeline returns the document that the stages make. One that they leave without an _id keeps
// its own.
func (u *Update) runPipeline(d bsoncore.Document, c UpdateContext) (bsoncore.Document, error) {
	old := d
	for _, stage := range u.pipeline {
		var err error
		if d, err = stage.run(d, c.Scope); err != nil {
			return nil, err
		}
	}
	if _, has := doc.Field(d, "_id"); !has {
		return withID(d, old), nil
	}
	return d, nil
}

func (s updateStage) run(d bsoncore.Document, scope Scope) (bsoncore.Document, error) {
	switch root := newTree(d); {
	case s.set != nil:
		err := setFields(root, nil, s.set, d, scope)
		return root.current().Data, err
	case s.unset != nil:
		for _, field := range s.unset {
			unsetPath(root, strings.Split(field, "."))
		}
		return root.current().Data, nil
	default:
		v, err := Evaluate(s.root, d, scope)
		if err == nil && v.Type != bsoncore.TypeEmbeddedDocument {
			err = wire.Errorf(40228, "'replacement document' must evaluate to an object, but resulting value was of type: %s", doc.TypeName(v.Type))
		}
		return v.Data, err
	}
}

// unsetPath removes a field: of documents in arrays, each one's.
func unsetPath(at *updateTree, path []string) {
	switch {
	case at.isArray():
		at.expand()
		for _, k := range at.kids {
			unsetPath(k, path)
		}
	case at.value.Type != bsoncore.TypeEmbeddedDocument:
	case len(path) == 1:
		at.expand()
		at.remove(path[0])
	default:
		if kid := at.child(path[0]); kid != nil {
			unsetPath(kid, path[1:])
		}
	}
}

// setFields sets the fields that a $set names, below prefix; every expression sees the stage's
// input d.
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

// setPath sets a value in the documents at a path: another value becomes a document, and in an
// array every element does.
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
