package query

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// operators are the modifiers that are known.
//
//nolint:gochecknoglobals // a constant table
var operators = []string{
	"$set", "$setOnInsert", "$unset", "$inc", "$mul", "$min", "$max", "$bit", "$currentDate", "$rename",
	"$push", "$addToSet", "$pop", "$pull", "$pullAll",
}

// removal is the part of $rename that removes the field under its old name.
const removal = "$rename from"

// rename returns the two modifiers of a $rename: the path of the first is the new name, its
// argument the old one.
func (m modifier) rename() ([]modifier, error) {
	to, ok := m.arg.StringValueOK()
	if !ok {
		return nil, wire.Errorf(wire.BadValue, "The 'to' field for $rename must be a string: {%s}", doc.Element(m.String(), m.arg))
	}
	from := modifier{op: removal, path: m.path}
	set := modifier{op: m.op, path: strings.Split(to, "."), arg: bsoncore.Value{
		Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, m.String()),
	}}
	for _, one := range []modifier{from, set} {
		if err := one.check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(one.path, isPositional) {
			return nil, wire.Errorf(wire.BadValue, "The source and destination fields for $rename may not be dynamic: %s", one)
		}
	}
	return []modifier{from, set}, nil
}

// checkArgument refuses arguments that an operator does not take.
func (m modifier) checkArgument() error {
	number := m.arg.IsNumber()
	switch m.op {
	case "$inc", "$mul":
		if !number {
			verb := map[string]string{"$inc": "increment", "$mul": "multiply"}[m.op]
			return wire.Errorf(wire.TypeMismatch, "Cannot %s with non-numeric argument: {%s}", verb, doc.Element(m.String(), m.arg))
		}
	case "$push":
		_, err := m.pushed()
		return err
	case "$addToSet":
		_, err := m.each()
		return err
	case "$pop":
		if n, ok := doc.Int(m.arg); !ok || n != 1 && n != -1 {
			return wire.Errorf(wire.FailedToParse, "$pop expects 1 or -1, found: %s", doc.Literal(m.arg))
		}
	case "$pullAll":
		if m.arg.Type != bsoncore.TypeArray {
			return wire.Errorf(wire.BadValue, "$pullAll requires an array argument but was given a %s", doc.TypeName(m.arg.Type))
		}
	case "$pull":
		_, err := m.pulls()
		return err
	case "$bit":
		_, err := m.bits(bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, 0)})
		return err
	case "$currentDate":
		_, err := m.wantsTimestamp()
		return err
	}
	return nil
}

// culls reports whether the operator only removes: where the path leads nowhere it does nothing.
func (m modifier) culls() bool {
	return slices.Contains([]string{"$unset", removal, "$pop", "$pull", "$pullAll"}, m.op)
}

// each returns the elements that $push and $addToSet add: those of $each, or the argument.
func (m modifier) each() ([]bsoncore.Value, error) {
	name, _, ok := doc.First(m.arg.Data)
	if m.arg.Type != bsoncore.TypeEmbeddedDocument || !ok || !strings.HasPrefix(name, "$") {
		return []bsoncore.Value{m.arg}, nil
	}
	list, ok := doc.Field(m.arg.Data, "$each")
	if !ok {
		return nil, wire.Errorf(52, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", name, m)
	}
	if list.Type != bsoncore.TypeArray {
		return nil, wire.Errorf(wire.BadValue, "The argument to $each in %s must be an array but it was of type: %s", m.op, doc.TypeName(list.Type))
	}
	if doc.Len(m.arg.Data) > 1 && m.op == "$addToSet" {
		return nil, wire.Errorf(wire.BadValue, "Found unexpected fields after $each in $addToSet: %s", doc.Text(m.arg.Data))
	}
	return slices.Collect(doc.Values(list.Data)), nil
}

// A push is what $push does to an array: it inserts elements, sorts, and slices.
type push struct {
	elements []bsoncore.Value
	position *int64
	sort     *bsoncore.Value
	slice    *int64
}

// appends reports whether the elements are only added at the end: then each is logged by its index.
func (p push) appends() bool { return p.position == nil && p.sort == nil && p.slice == nil }

func (m modifier) pushed() (p push, err error) {
	if p.elements, err = m.each(); err != nil {
		return p, err
	}
	if _, modified := doc.Field(m.arg.Data, "$each"); m.arg.Type != bsoncore.TypeEmbeddedDocument || !modified {
		return p, nil
	}
	for name, v := range doc.All(m.arg.Data) {
		n, isInt := doc.Int(v)
		switch name {
		case "$each":
		case "$position", "$slice":
			if !isInt {
				return p, wire.Errorf(wire.BadValue, "The value for %s must be an integer value but was given type: %s", name, doc.TypeName(v.Type))
			}
			if name == "$slice" {
				p.slice = &n
			} else {
				p.position = &n
			}
		case "$sort":
			if v.Type == bsoncore.TypeEmbeddedDocument {
				if _, err := ParseSort(v.Data); err != nil {
					return p, err
				}
			} else if !isInt || n != 1 && n != -1 {
				return p, wire.Errorf(wire.BadValue, "The $sort element value must be either 1 or -1")
			}
			p.sort = &v
		default:
			return p, wire.Errorf(wire.BadValue, "Unrecognized clause in $push: %s", name)
		}
	}
	return p, nil
}

// apply returns the array after the push.
func (p push) apply(list []bsoncore.Value) []bsoncore.Value {
	n := int64(len(list))
	at := n
	if p.position != nil {
		if at = *p.position; at < 0 {
			at = max(0, n+at)
		}
		at = min(at, n)
	}
	list = slices.Insert(slices.Clone(list), int(at), p.elements...)
	if p.sort != nil {
		sortValues(list, *p.sort)
	}
	if p.slice != nil {
		n = int64(len(list))
		if *p.slice < 0 {
			list = list[max(0, n+*p.slice):]
		} else {
			list = list[:min(n, *p.slice)]
		}
	}
	return list
}

// sortValues sorts as $sort of $push says: 1, -1, or by fields of the elements.
func sortValues(list []bsoncore.Value, by bsoncore.Value) {
	const field = "v"
	spec := doc.New().Value(field, by)
	if by.Type == bsoncore.TypeEmbeddedDocument {
		spec = doc.New()
		for name, order := range doc.All(by.Data) {
			spec.Value(field+"."+name, order)
		}
	}
	s, err := ParseSort(spec.Document())
	if err != nil {
		return // it has been checked
	}
	wrapped := make([]bsoncore.Document, len(list))
	for i, v := range list {
		wrapped[i] = doc.New().Value(field, v).Document()
	}
	s.Apply(wrapped)
	for i, d := range wrapped {
		list[i], _ = doc.Field(d, field)
	}
}

// pulls returns what $pull removes: the elements that satisfy a condition, or equal a value.
func (m modifier) pulls() (func(bsoncore.Value) bool, error) {
	const field = "v"
	switch {
	case m.arg.Type != bsoncore.TypeEmbeddedDocument:
		return func(v bsoncore.Value) bool { return equal(v, m.arg) }, nil
	case isOperators(m.arg):
		f, err := ParseFilter(doc.New().Value(field, m.arg).Document())
		return func(v bsoncore.Value) bool { return f.Match(doc.New().Value(field, v).Bytes()) }, err
	default:
		f, err := ParseFilter(m.arg.Data)
		return func(v bsoncore.Value) bool { return v.Type == bsoncore.TypeEmbeddedDocument && f.Match(v.Data) }, err
	}
}

// array returns the array after an operator on arrays, and whether that has changed it.
func (m *modification) array(list []bsoncore.Value, one modifier) (after []bsoncore.Value, changed bool, err error) {
	switch one.op {
	case "$addToSet":
		elements, err := one.each()
		after = slices.Clone(list)
		for _, v := range elements {
			if !slices.ContainsFunc(after, func(w bsoncore.Value) bool { return equal(v, w) }) {
				after = append(after, v)
			}
		}
		return after, len(after) > len(list), err
	case "$pop":
		if len(list) == 0 {
			return list, false, nil
		}
		if n, _ := doc.Int(one.arg); n < 0 {
			return list[1:], true, nil
		}
		return list[:len(list)-1], true, nil
	case "$pullAll":
		unwanted := slices.Collect(doc.Values(one.arg.Data))
		after = slices.DeleteFunc(slices.Clone(list), func(v bsoncore.Value) bool {
			return slices.ContainsFunc(unwanted, func(w bsoncore.Value) bool { return equal(v, w) })
		})
		return after, len(after) < len(list), nil
	default: // $pull
		pulled, err := one.pulls()
		if err != nil {
			return list, false, err
		}
		after = slices.DeleteFunc(slices.Clone(list), pulled)
		return after, len(after) < len(list), nil
	}
}

// bits applies $bit to a value.
func (m modifier) bits(v bsoncore.Value) (bsoncore.Value, error) {
	if m.arg.Type != bsoncore.TypeEmbeddedDocument || doc.Empty(m.arg.Data) {
		return v, wire.Errorf(wire.BadValue, "The $bit modifier is not compatible with a %s. You must pass in an embedded document: {$bit: {field: {and/or/xor: #}}",
			doc.TypeName(m.arg.Type))
	}
	for name, arg := range doc.All(m.arg.Data) {
		n, ok := integer(arg)
		if !ok {
			return v, wire.Errorf(wire.BadValue, "The $bit modifier field must be an Integer(32/64 bit); a '%s' is not supported here: {%s}",
				doc.TypeName(arg.Type), doc.Element(name, arg))
		}
		before, _ := integer(v)
		switch name {
		case "and":
			before &= n
		case "or":
			before |= n
		case "xor":
			before ^= n
		default:
			return v, wire.Errorf(wire.BadValue, "The $bit modifier only supports 'and', 'or', and 'xor', not '%s' which is an unknown operator: {%s}", name, doc.Element(name, arg))
		}
		if v.Type == bsoncore.TypeInt32 && arg.Type == bsoncore.TypeInt32 {
			v = bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, int32(before))}
		} else {
			v = bsoncore.Value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, before)}
		}
	}
	return v, nil
}

// productOf multiplies two numbers as MongoDB does: the wider type wins, and a product that does
// not fit an int32 becomes an int64. It reports false for other types, for decimals, and for an
// int64 that overflows.
func productOf(a, b bsoncore.Value) (bsoncore.Value, bool) {
	areNumbers := a.IsNumber() && b.IsNumber()
	switch {
	case !areNumbers || a.Type == bsoncore.TypeDecimal128 || b.Type == bsoncore.TypeDecimal128:
		return bsoncore.Value{}, false
	case a.Type == bsoncore.TypeDouble || b.Type == bsoncore.TypeDouble:
		return bsoncore.Value{Type: bsoncore.TypeDouble, Data: bsoncore.AppendDouble(nil, a.AsFloat64()*b.AsFloat64())}, true
	}
	x, _ := integer(a)
	y, _ := integer(b)
	product := x * y
	isNegatedMin := x == -1 && y == math.MinInt64 // whose product is itself
	if x != 0 && (product/x != y || isNegatedMin) {
		return bsoncore.Value{}, false
	}
	if a.Type == bsoncore.TypeInt32 && b.Type == bsoncore.TypeInt32 && product == int64(int32(product)) {
		return bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, int32(product))}, true
	}
	return bsoncore.Value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, product)}, true
}

// zeroOf returns the 0 of a number's type.
func zeroOf(v bsoncore.Value) bsoncore.Value {
	data := make([]byte, len(v.Data))
	if v.Type == bsoncore.TypeDecimal128 {
		return bsoncore.Value{Type: v.Type, Data: bsoncore.AppendDecimal128(nil, 0x3040000000000000, 0)}
	}
	return bsoncore.Value{Type: v.Type, Data: data}
}
