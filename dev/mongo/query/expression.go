package query

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Scope has the names that an expression may use besides its document.
type Scope struct {
	NowMS       int64  // $$NOW, milliseconds since the epoch
	ClusterTime uint64 // $$CLUSTER_TIME
}

// Evaluate computes an aggregation expression over a document: literals, "$field", "$$NOW",
// "$$CLUSTER_TIME", "$$ROOT", "$$REMOVE", $literal, $add, $ifNull, $slice, $concatArrays,
// $mergeObjects, $setField and $unsetField. A missing field gives the zero Value.
func Evaluate(v bsoncore.Value, d bsoncore.Document, s Scope) (bsoncore.Value, error) {
	switch v.Type {
	case bsoncore.TypeString:
		return s.text(v, d)
	case bsoncore.TypeEmbeddedDocument:
		if name, arg, ok := doc.First(v.Data); ok && strings.HasPrefix(name, "$") {
			return s.operator(name, arg, v.Data, d)
		}
		return s.object(v.Data, d)
	case bsoncore.TypeArray:
		items, err := s.list(v.Data, d)
		return Array(items), err
	default:
		return v, nil
	}
}

// Array builds an array value; missing values become null.
func Array(items []bsoncore.Value) bsoncore.Value {
	b := doc.New()
	for i, item := range items {
		if item.Type == 0 {
			item.Type = bsoncore.TypeNull
		}
		b.Value(doc.Index(i), item)
	}
	return bsoncore.Value{Type: bsoncore.TypeArray, Data: b.Bytes()}
}

func (s Scope) text(v bsoncore.Value, d bsoncore.Document) (bsoncore.Value, error) {
	text := v.StringValue()
	name, variable := strings.CutPrefix(text, "$$")
	if !variable {
		field, isPath := strings.CutPrefix(text, "$")
		if !isPath {
			return v, nil
		}
		return fieldPath(d, parsePath(field)), nil
	}
	name, rest, deeper := strings.Cut(name, ".")
	switch name {
	case "NOW":
		return bsoncore.Value{Type: bsoncore.TypeDateTime, Data: bsoncore.AppendInt64(nil, s.NowMS)}, nil
	case "CLUSTER_TIME":
		ts := bsoncore.AppendTimestamp(nil, uint32(s.ClusterTime>>32), uint32(s.ClusterTime))
		return bsoncore.Value{Type: bsoncore.TypeTimestamp, Data: ts}, nil
	case "ROOT", "CURRENT":
		if deeper {
			return fieldPath(d, parsePath(rest)), nil
		}
		return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: d}, nil
	case "REMOVE":
		return bsoncore.Value{}, nil
	default:
		return bsoncore.Value{}, wire.Errorf(17276, "Use of undefined variable: %s", name)
	}
}

// fieldPath follows documents; of an array it collects what its documents have.
func fieldPath(d []byte, p path) bsoncore.Value {
	v, ok := doc.Field(d, p[0])
	if !ok || len(p) == 1 {
		return v
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return fieldPath(v.Data, p[1:])
	case bsoncore.TypeArray:
		var items []bsoncore.Value
		for item := range doc.Values(v.Data) {
			if item.Type != bsoncore.TypeEmbeddedDocument {
				continue
			}
			if sub := fieldPath(item.Data, p[1:]); sub.Type != 0 {
				items = append(items, sub)
			}
		}
		return Array(items)
	default:
		return bsoncore.Value{}
	}
}

func (s Scope) object(spec []byte, d bsoncore.Document) (bsoncore.Value, error) {
	b := doc.New()
	for name, v := range doc.All(spec) {
		value, err := Evaluate(v, d, s)
		if err != nil {
			return bsoncore.Value{}, err
		}
		if value.Type != 0 {
			b.Value(name, value)
		}
	}
	return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: b.Bytes()}, nil
}

func (s Scope) list(spec []byte, d bsoncore.Document) ([]bsoncore.Value, error) {
	var items []bsoncore.Value
	for v := range doc.Values(spec) {
		value, err := Evaluate(v, d, s)
		if err != nil {
			return nil, err
		}
		items = append(items, value)
	}
	return items, nil
}

func (s Scope) operator(name string, arg bsoncore.Value, spec []byte, d bsoncore.Document) (bsoncore.Value, error) {
	if doc.Len(spec) != 1 {
		return bsoncore.Value{}, wire.Errorf(15983, "An object representing an expression must have exactly one field")
	}
	switch name {
	case "$literal":
		return arg, nil
	case "$setField", "$unsetField":
		return s.setField(name, arg, d)
	}
	var args []bsoncore.Value
	var err error
	if arg.Type == bsoncore.TypeArray {
		args, err = s.list(arg.Data, d)
	} else {
		var one bsoncore.Value
		one, err = Evaluate(arg, d, s)
		args = []bsoncore.Value{one}
	}
	if err != nil {
		return bsoncore.Value{}, err
	}
	switch name {
	case "$add":
		return add(args)
	case "$ifNull":
		return ifNull(args)
	case "$slice":
		return slice(args)
	case "$concatArrays":
		return concatArrays(args)
	case "$mergeObjects":
		return mergeObjects(args)
	default:
		return bsoncore.Value{}, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the expression %s", name)
	}
}

func ifNull(args []bsoncore.Value) (bsoncore.Value, error) {
	if len(args) < 2 {
		return bsoncore.Value{}, wire.Errorf(1257300, "$ifNull needs at least two arguments, had: %d", len(args))
	}
	for _, v := range args[:len(args)-1] {
		if v.Type != 0 && v.Type != bsoncore.TypeNull && v.Type != bsoncore.TypeUndefined {
			return v, nil
		}
	}
	return args[len(args)-1], nil
}

func add(args []bsoncore.Value) (bsoncore.Value, error) {
	sum := bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, 0)}
	var date *bsoncore.Value
	for _, v := range args {
		switch {
		case v.Type == 0 || v.Type == bsoncore.TypeNull || v.Type == bsoncore.TypeUndefined:
			return bsoncore.Value{Type: bsoncore.TypeNull}, nil
		case v.Type == bsoncore.TypeDateTime && date == nil:
			date = &v
		default:
			next, ok := sumOf(sum, v)
			if !ok {
				return bsoncore.Value{}, wire.Errorf(wire.TypeMismatch, "$add only supports numeric or date types, not %s", v.Type)
			}
			sum = next
		}
	}
	if date == nil {
		return sum, nil
	}
	ms := date.DateTime() + int64(math.Round(sum.AsFloat64()))
	return bsoncore.Value{Type: bsoncore.TypeDateTime, Data: bsoncore.AppendInt64(nil, ms)}, nil
}

// sumOf adds two numbers as MongoDB does: the wider type wins, and a sum that does not fit an int32
// becomes an int64. It reports false for other types, for decimals, and for an int64 that
// overflows.
func sumOf(a, b bsoncore.Value) (bsoncore.Value, bool) {
	if a.Type == bsoncore.TypeDouble || b.Type == bsoncore.TypeDouble {
		areNumbers := class(a.Type) == 10 && class(b.Type) == 10
		if !areNumbers || a.Type == bsoncore.TypeDecimal128 || b.Type == bsoncore.TypeDecimal128 {
			return bsoncore.Value{}, false
		}
		return bsoncore.Value{Type: bsoncore.TypeDouble, Data: bsoncore.AppendDouble(nil, a.AsFloat64()+b.AsFloat64())}, true
	}
	x, ok := integer(a)
	y, ok2 := integer(b)
	if !ok || !ok2 {
		return bsoncore.Value{}, false
	}
	sum := x + y
	isOver := x > 0 && y > 0 && sum <= 0
	isUnder := x < 0 && y < 0 && sum >= 0
	if isOver || isUnder {
		return bsoncore.Value{}, false
	}
	if a.Type == bsoncore.TypeInt32 && b.Type == bsoncore.TypeInt32 && sum == int64(int32(sum)) {
		return bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, int32(sum))}, true
	}
	return bsoncore.Value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, sum)}, true
}

// slice is $slice: [array, n] or [array, position, n].
func slice(args []bsoncore.Value) (bsoncore.Value, error) {
	if len(args) != 2 && len(args) != 3 {
		return bsoncore.Value{}, wire.Errorf(28667, "Expression $slice takes at least 2 arguments, and at most 3, but %d were passed in.", len(args))
	}
	if args[0].Type == 0 || args[0].Type == bsoncore.TypeNull {
		return bsoncore.Value{Type: bsoncore.TypeNull}, nil
	}
	if args[0].Type != bsoncore.TypeArray {
		return bsoncore.Value{}, wire.Errorf(28724, "First argument to $slice must be an array, but is of type: %s", args[0].Type)
	}
	var items []bsoncore.Value
	for v := range doc.Values(args[0].Data) {
		items = append(items, v)
	}
	n, ok := doc.Int(args[len(args)-1])
	if !ok {
		return bsoncore.Value{}, wire.Errorf(28725, "Second argument to $slice must be a numeric value, but is of type: %s", args[1].Type)
	}
	from, length := int64(0), int64(len(items))
	if len(args) == 3 {
		if from, ok = doc.Int(args[1]); !ok || n <= 0 {
			return bsoncore.Value{}, wire.Errorf(28729, "Third argument to $slice must be positive")
		}
		if from < 0 {
			from = max(0, length+from)
		}
	} else if n < 0 {
		from = max(0, length+n)
		n = length
	}
	from = min(from, length)
	return Array(items[from : from+min(n, length-from)]), nil
}

// setField is $setField: {field, input, value}, and $unsetField: {field, input}. The name of the
// field may have dots and begin with a dollar.
func (s Scope) setField(name string, arg bsoncore.Value, d bsoncore.Document) (bsoncore.Value, error) {
	part := func(of string) bsoncore.Value {
		v, _ := doc.Field(arg.Data, of)
		return v
	}
	needed := []string{"field", "input"}
	if name == "$setField" {
		needed = append(needed, "value")
	}
	lacks := func(of string) bool { return part(of).Type == 0 }
	if arg.Type != bsoncore.TypeEmbeddedDocument || slices.ContainsFunc(needed, lacks) {
		return bsoncore.Value{}, wire.Errorf(4161100, "%s requires 'field', 'input' and, to set it, 'value'", name)
	}
	field, err := Evaluate(part("field"), d, s)
	if err != nil {
		return bsoncore.Value{}, err
	}
	key, ok := field.StringValueOK()
	if !ok {
		return bsoncore.Value{}, wire.Errorf(4161107, "%s requires 'field' to evaluate to type String, but got %s", name, doc.TypeName(field.Type))
	}
	input, err := Evaluate(part("input"), d, s)
	if err != nil {
		return bsoncore.Value{}, err
	}
	switch input.Type {
	case 0, bsoncore.TypeNull, bsoncore.TypeUndefined:
		return bsoncore.Value{Type: bsoncore.TypeNull}, nil
	case bsoncore.TypeEmbeddedDocument:
	default:
		return bsoncore.Value{}, wire.Errorf(4161105, "%s requires 'input' to evaluate to type Object", name)
	}
	var value bsoncore.Value
	if name == "$setField" {
		if value, err = Evaluate(part("value"), d, s); err != nil {
			return value, err
		}
	}
	root := &updateTree{value: input}
	kid := root.child(key)
	switch {
	case value.Type == 0:
		root.remove(key)
	case kid == nil:
		root.add(key, value)
	default:
		kid.set(value)
	}
	return root.current(), nil
}

func concatArrays(args []bsoncore.Value) (bsoncore.Value, error) {
	var items []bsoncore.Value
	for _, v := range args {
		switch v.Type {
		case 0, bsoncore.TypeNull, bsoncore.TypeUndefined:
			return bsoncore.Value{Type: bsoncore.TypeNull}, nil
		case bsoncore.TypeArray:
			items = slices.AppendSeq(items, doc.Values(v.Data))
		default:
			return bsoncore.Value{}, wire.Errorf(28664, "$concatArrays only supports arrays, not %s", doc.TypeName(v.Type))
		}
	}
	return Array(items), nil
}

func mergeObjects(args []bsoncore.Value) (bsoncore.Value, error) {
	root := newTree(doc.New().Document())
	for _, v := range args {
		switch v.Type {
		case 0, bsoncore.TypeNull, bsoncore.TypeUndefined:
		case bsoncore.TypeEmbeddedDocument:
			for name, field := range doc.All(v.Data) {
				if kid := root.child(name); kid != nil {
					kid.set(field)
				} else {
					root.add(name, field)
				}
			}
		default:
			return bsoncore.Value{}, wire.Errorf(40400, "$mergeObjects requires object inputs, but input %s is of type %s", doc.Literal(v), doc.TypeName(v.Type))
		}
	}
	return root.current(), nil
}
