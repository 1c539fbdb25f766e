package doc

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Text prints a document the way the server prints BSON in its messages: { _id: 1, a: "x" }. Of a string of 160 bytes or more it shows
// the first 150.
func Text(d []byte) string { return text(d, "{ ", " }", "{}", true) }

// Compact prints a document the way the server prints what runs through a pipeline: {_id: 1, a: "x"}.
func Compact(d []byte) string { return text(d, "{", "}", "{}", true) }

// Element prints one named value like Text does: _id: 1.
func Element(name string, v bsoncore.Value) string { return name + ": " + valueText(v, Text, true) }

// Literal prints a value alone, as Text would.
func Literal(v bsoncore.Value) string { return valueText(v, Text, true) }

// How long a string must be for Text to cut it, and how much of it is left (BSONElement::toString).
const (
	longString = 160
	cutString  = 150
)

func text(d []byte, open, closing, empty string, names bool) string {
	if Empty(d) {
		return empty
	}
	nested, cut := Text, true
	if open == "{" {
		nested, cut = Compact, false
	}
	var parts []string
	for name, v := range All(d) {
		s := valueText(v, nested, cut)
		if names {
			s = name + ": " + s
		}
		parts = append(parts, s)
	}
	return open + strings.Join(parts, ", ") + closing
}

func valueText(v bsoncore.Value, nested func([]byte) string, cut bool) string {
	switch v.Type {
	case bsoncore.TypeInt32, bsoncore.TypeInt64:
		n, _ := Int(v)
		return strconv.FormatInt(n, 10)
	case bsoncore.TypeDouble:
		return doubleText(v.Double())
	case bsoncore.TypeString:
		s := v.StringValue()
		if cut && len(s) >= longString {
			return strings.TrimSuffix(strconv.Quote(s[:cutString]), `"`) + `..."`
		}
		return strconv.Quote(s)
	case bsoncore.TypeEmbeddedDocument:
		return nested(v.Data)
	case bsoncore.TypeArray:
		return text(v.Data, "[ ", " ]", "[]", false)
	case bsoncore.TypeObjectID:
		return fmt.Sprintf("ObjectId('%x')", v.Data)
	case bsoncore.TypeBoolean:
		return strconv.FormatBool(v.Boolean())
	case bsoncore.TypeDateTime:
		return fmt.Sprintf("new Date(%d)", v.DateTime())
	case bsoncore.TypeTimestamp:
		t, i := v.Timestamp()
		return fmt.Sprintf("Timestamp(%d, %d)", t, i)
	case bsoncore.TypeNull:
		return "null"
	case bsoncore.TypeMinKey:
		return "MinKey"
	case bsoncore.TypeMaxKey:
		return "MaxKey"
	case bsoncore.TypeBinary:
		subtype, data := v.Binary()
		if subtype == 4 && len(data) == 16 {
			return fmt.Sprintf(`UUID("%x-%x-%x-%x-%x")`, data[:4], data[4:6], data[6:8], data[8:10], data[10:])
		}
		return fmt.Sprintf("BinData(%d, %X)", subtype, data)
	default:
		return v.String()
	}
}

func doubleText(f float64) string {
	s := strconv.FormatFloat(f, 'g', 15, 64)
	if !strings.ContainsAny(s, ".eEIN") {
		s += ".0"
	}
	return s
}

// TypeName is the server's short name of a type, as its messages use it.
func TypeName(t bsoncore.Type) string {
	switch t {
	case bsoncore.TypeDouble:
		return "double"
	case bsoncore.TypeString:
		return "string"
	case bsoncore.TypeEmbeddedDocument:
		return "object"
	case bsoncore.TypeArray:
		return "array"
	case bsoncore.TypeBinary:
		return "binData"
	case bsoncore.TypeUndefined:
		return "undefined"
	case bsoncore.TypeObjectID:
		return "objectId"
	case bsoncore.TypeBoolean:
		return "bool"
	case bsoncore.TypeDateTime:
		return "date"
	case bsoncore.TypeNull:
		return "null"
	case bsoncore.TypeRegex:
		return "regex"
	case bsoncore.TypeInt32:
		return "int"
	case bsoncore.TypeTimestamp:
		return "timestamp"
	case bsoncore.TypeInt64:
		return "long"
	case bsoncore.TypeDecimal128:
		return "decimal"
	case bsoncore.TypeMinKey:
		return "minKey"
	case bsoncore.TypeMaxKey:
		return "maxKey"
	default:
		return "missing"
	}
}
