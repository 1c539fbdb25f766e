package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Update is a compiled update: exactly one of its parts is set.
type Update struct {
	replacement bsoncore.Document
	modifiers   []modifier
	pipeline    []bsoncore.Document // the documents of its $set stages
}

// UpdateContext is what an update may depend on besides the document.
type UpdateContext struct {
	Scope
	// Insert is true for the document that an upsert is about to insert.
	Insert bool
}

// UpdateResult is what became of a document.
type UpdateResult struct {
	Doc     bsoncore.Document
	Changed bool
	// Whole is true when the document was replaced, or computed by a pipeline: there is no list of fields.
	Whole bool
	// Updated and Removed name the changed fields with dotted paths.
	Updated bsoncore.Document
	Removed []string
	// Disambiguated explains the paths that have numbers as field names; nil when there are none.
	Disambiguated bsoncore.Document
}

// modifier is one operator on one path.
type modifier struct {
	op   string
	path []string
	arg  bsoncore.Value
}

func (m modifier) String() string { return strings.Join(m.path, ".") }

// ParseUpdate compiles the u of an update statement: a document of modifiers, a replacement, or a pipeline.
func ParseUpdate(u bsoncore.Value) (*Update, error) {
	switch u.Type {
	case bsoncore.TypeArray:
		return parsePipeline(u.Data)
	case bsoncore.TypeEmbeddedDocument:
		if name, _, ok := doc.First(u.Data); ok && strings.HasPrefix(name, "$") {
			return parseModifiers(u.Data)
		}
		return parseReplacement(u.Data)
	default:
		return nil, wire.Errorf(wire.FailedToParse, "Update argument must be either an object or an array")
	}
}

// IsReplacement reports whether the update is a whole document.
func (u *Update) IsReplacement() bool { return u.replacement != nil }

func parseReplacement(d bsoncore.Document) (*Update, error) {
	for name := range doc.All(d) {
		if strings.HasPrefix(name, "$") {
			return nil, wire.Errorf(52, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", name, name)
		}
	}
	return &Update{replacement: doc.Clone(d)}, nil
}

func parseModifiers(d bsoncore.Document) (*Update, error) {
	u := &Update{}
	for op, fields := range doc.All(d) {
		if err := checkModifier(op, fields); err != nil {
			return nil, err
		}
		for name, arg := range doc.All(fields.Data) {
			m := modifier{op: op, path: strings.Split(name, "."), arg: arg}
			if err := m.check(); err != nil {
				return nil, err
			}
			u.modifiers = append(u.modifiers, m)
		}
	}
	slices.SortStableFunc(u.modifiers, func(a, b modifier) int { return comparePaths(a.path, b.path) })
	for i := 1; i < len(u.modifiers); i++ {
		short, long := u.modifiers[i-1], u.modifiers[i]
		if len(short.path) <= len(long.path) && slices.Equal(short.path, long.path[:len(short.path)]) {
			return nil, wire.Errorf(wire.ConflictingUpdateOperators, "Updating the path '%s' would create a conflict at '%s'", long, short)
		}
	}
	return u, nil
}

func checkModifier(op string, fields bsoncore.Value) error {
	supported := []string{"$set", "$setOnInsert", "$unset", "$inc", "$min", "$max", "$push", "$currentDate"}
	known := []string{"$rename", "$mul", "$pull", "$pullAll", "$pop", "$addToSet", "$bit", "$pushAll"}
	switch {
	case slices.Contains(known, op):
		return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the update operator %s", op)
	case !strings.HasPrefix(op, "$") || !slices.Contains(supported, op):
		return wire.Errorf(wire.FailedToParse, "Unknown modifier: %s. Expected a valid update modifier or pipeline-style update specified as an array", op)
	case fields.Type != bsoncore.TypeEmbeddedDocument:
		return wire.Errorf(wire.FailedToParse, "Modifiers operate on fields but we found type %s instead. For example: {$mod: {<field>: ...}} not {%s}",
			doc.TypeName(fields.Type), doc.Element(op, fields))
	case doc.Empty(fields.Data):
		return wire.Errorf(wire.FailedToParse, "'%s' is empty. You must specify a field like so: {%s: {<field>: ...}}", op, op)
	default:
		return nil
	}
}

// maxPath is the greatest number of names in a path.
const maxPath = 200

func (m modifier) check() error {
	if len(m.path) > maxPath {
		return wire.Errorf(wire.Overflow, "the update path has more than %d names", maxPath)
	}
	for _, part := range m.path {
		switch {
		case part == "":
			return wire.Errorf(56, "The update path '%s' contains an empty field name, which is not allowed.", m)
		case strings.HasPrefix(part, "$"):
			return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the positional path '%s'", m)
		}
	}
	switch {
	case m.op == "$inc" && !m.arg.IsNumber():
		return wire.Errorf(wire.TypeMismatch, "Cannot increment with non-numeric argument: {%s}", doc.Element(m.String(), m.arg))
	case m.op == "$push" && m.arg.Type == bsoncore.TypeEmbeddedDocument:
		if name, _, ok := doc.First(m.arg.Data); ok && strings.HasPrefix(name, "$") {
			return wire.Errorf(wire.CommandNotSupported, "devmongo does not support %s in $push", name)
		}
	case m.op == "$currentDate":
		_, err := m.wantsTimestamp()
		return err
	}
	return nil
}

// wantsTimestamp tells {$currentDate: {f: {$type: "timestamp"}}} from the date that is its default.
func (m modifier) wantsTimestamp() (bool, error) {
	if m.arg.Type == bsoncore.TypeBoolean {
		return false, nil
	}
	bad := wire.Errorf(wire.BadValue, "%s is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({$type: 'timestamp/date'}).", doc.TypeName(m.arg.Type))
	if m.arg.Type != bsoncore.TypeEmbeddedDocument {
		return false, bad
	}
	v, _ := doc.Field(m.arg.Data, "$type")
	switch kind, _ := v.StringValueOK(); kind {
	case "timestamp":
		return true, nil
	case "date":
		return false, nil
	default:
		return false, bad
	}
}

// comparePaths orders paths part by part: numbers as numbers, names as text.
func comparePaths(a, b []string) int { return slices.CompareFunc(a, b, compareParts) }

func compareParts(a, b string) int {
	x, errX := strconv.ParseUint(a, 10, 32)
	y, errY := strconv.ParseUint(b, 10, 32)
	if errX == nil && errY == nil {
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	}
	return strings.Compare(a, b)
}

// UpsertSeed is what an upsert begins with: the fields that the filter fixes; only _id before a replacement.
func UpsertSeed(f *Filter, u *Update) (bsoncore.Document, error) {
	fields := doc.New()
	fixed := false
	for _, e := range f.Equalities() {
		if e.Path == "_id" || !u.IsReplacement() {
			fields.Value(e.Path, e.Value)
			fixed = true
		}
	}
	if !fixed {
		return fields.Document(), nil
	}
	set, err := parseModifiers(doc.New().Doc("$set", fields.Document()).Document())
	if err != nil {
		return nil, err
	}
	r, err := set.Apply(doc.New().Document(), UpdateContext{})
	return r.Doc, err
}

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
