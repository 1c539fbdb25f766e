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

// Update is a compiled update: exactly one of replacement, modifiers and pipeline is set.
type Update struct {
	replacement  bsoncore.Document
	modifiers    []modifier
	arrayFilters map[string]*Filter // by identifier; of modifiers
	pipeline     []updateStage
}

// UpdateContext has the inputs of an update besides the document.
type UpdateContext struct {
	Scope
	// Insert is true for the document that an upsert is about to insert.
	Insert bool
	// Filter is the statement's filter: it decides which element the positional operator $ means.
	Filter *Filter
	// Deltas says that a path that an update creates is logged as the topmost new field with all
	// that is in it, as servers do since 5.0.
	Deltas bool
}

// UpdateResult is what became of a document.
type UpdateResult struct {
	Doc     bsoncore.Document
	Changed bool
	// Whole is true when the document was replaced, or computed by a pipeline: there is no list of
	// fields.
	Whole bool
	// Updated and Removed name the changed fields with dotted paths.
	Updated bsoncore.Document
	Removed []string
	// Disambiguated explains the paths that have numbers or names with dots as field names; nil
	// when there are none.
	Disambiguated bsoncore.Document
}

// modifier is one operator on one path.
type modifier struct {
	op   string
	path []string
	arg  bsoncore.Value
}

func (m modifier) String() string { return strings.Join(m.path, ".") }

// ParseUpdate compiles the u of an update statement: a document of modifiers, a replacement, or a
// pipeline. arrayFilters is the statement's array of that name, zero if it has none.
func ParseUpdate(u, arrayFilters bsoncore.Value) (*Update, error) {
	filtered := arrayFilters.Type != 0
	switch u.Type {
	case bsoncore.TypeArray:
		if filtered {
			return nil, wire.Errorf(wire.FailedToParse, "arrayFilters may not be specified for pipeline-syle updates")
		}
		return parsePipeline(u.Data)
	case bsoncore.TypeEmbeddedDocument:
		if name, _, ok := doc.First(u.Data); ok && strings.HasPrefix(name, "$") {
			return parseModifiers(u.Data, arrayFilters)
		}
		if filtered && !doc.Empty(arrayFilters.Data) {
			return nil, wire.Errorf(wire.FailedToParse, "arrayFilters may not be specified for replacement-style updates")
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

func parseModifiers(d bsoncore.Document, arrayFilters bsoncore.Value) (*Update, error) {
	u := &Update{}
	for op, fields := range doc.All(d) {
		if err := checkModifier(op, fields); err != nil {
			return nil, err
		}
		for name, arg := range doc.All(fields.Data) {
			m := modifier{op: op, path: strings.Split(name, "."), arg: arg}
			if op == "$rename" {
				both, err := m.rename()
				if err != nil {
					return nil, err
				}
				u.modifiers = append(u.modifiers, both...)
				continue
			}
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
	return u, u.parseArrayFilters(arrayFilters)
}

func checkModifier(op string, fields bsoncore.Value) error {
	switch {
	case op == "$pushAll" || !strings.HasPrefix(op, "$") || !slices.Contains(operators, op):
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
	for i, part := range m.path {
		switch {
		case part == "":
			return wire.Errorf(56, "The update path '%s' contains an empty field name, which is not allowed.", m)
		case !strings.HasPrefix(part, "$"):
		case isPositional(part) && i > 0:
		default:
			return wire.Errorf(52, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", part, m)
		}
	}
	return m.checkArgument()
}

// wantsTimestamp distinguishes {$currentDate: {f: {$type: "timestamp"}}} from the default, a date.
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

// UpsertSeed is the first document of an upsert: the fields that the filter fixes; only _id before
// a replacement.
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
	set, err := parseModifiers(doc.New().Doc("$set", fields.Document()).Document(), bsoncore.Value{})
	if err != nil {
		return nil, err
	}
	r, err := set.Apply(doc.New().Document(), UpdateContext{})
	return r.Doc, err
}
