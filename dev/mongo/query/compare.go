package query

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// class is the rank of a type in MongoDB's comparison order; types of one class compare by value.
func class(t bsoncore.Type) int {
	switch t {
	case bsoncore.TypeMinKey:
		return -1
	case 0, bsoncore.TypeUndefined:
		return 0
	case bsoncore.TypeNull:
		return 5
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble, bsoncore.TypeDecimal128:
		return 10
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		return 15
	case bsoncore.TypeEmbeddedDocument:
		return 20
	case bsoncore.TypeArray:
		return 25
	case bsoncore.TypeBinary:
		return 30
	case bsoncore.TypeObjectID:
		return 35
	case bsoncore.TypeBoolean:
		return 40
	case bsoncore.TypeDateTime:
		return 45
	case bsoncore.TypeTimestamp:
		return 47
	case bsoncore.TypeRegex:
		return 50
	case bsoncore.TypeDBPointer:
		return 55
	case bsoncore.TypeJavaScript:
		return 60
	case bsoncore.TypeCodeWithScope:
		return 65
	default:
		return 127
	}
}

// Compare orders two values as MongoDB sorts them: first by type class, then by value; numbers of
// all types compare as numbers.
func Compare(a, b bsoncore.Value) int {
	if c := cmp.Compare(class(a.Type), class(b.Type)); c != 0 {
		return c
	}
	if c, ok := compareSimple(a, b); ok {
		return c
	}
	ka, errA := doc.SortKey(a)
	kb, errB := doc.SortKey(b)
	if errA != nil || errB != nil {
		return bytes.Compare(a.Data, b.Data)
	}
	return strings.Compare(ka, kb)
}

// equal reports whether two values compare as equal: 1, 1L and 1.0 do.
func equal(a, b bsoncore.Value) bool {
	if a.Type == b.Type && bytes.Equal(a.Data, b.Data) {
		return true
	}
	return Compare(a, b) == 0
}

// Same reports whether two values are the same bytes: 1 and 1L are not.
func Same(a, b bsoncore.Value) bool { return a.Type == b.Type && bytes.Equal(a.Data, b.Data) }

// compareSimple compares values of one class without encoding them, where that is cheap.
func compareSimple(a, b bsoncore.Value) (int, bool) {
	switch a.Type {
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble:
		return compareNumbers(a, b)
	case bsoncore.TypeString:
		if b.Type == bsoncore.TypeString {
			return bytes.Compare(text(a), text(b)), true
		}
	case bsoncore.TypeObjectID, bsoncore.TypeBoolean:
		return bytes.Compare(a.Data, b.Data), true
	case bsoncore.TypeDateTime:
		return cmp.Compare(a.DateTime(), b.DateTime()), true
	case bsoncore.TypeTimestamp:
		return cmp.Compare(Timestamp(a), Timestamp(b)), true
	case bsoncore.TypeMinKey, bsoncore.TypeMaxKey, bsoncore.TypeNull, bsoncore.TypeUndefined, 0:
		return 0, true
	default:
		// The rest is compared by its keys.
	}
	return 0, false
}

// Timestamp reads a timestamp: seconds in the high half, the increment in the low half.
func Timestamp(v bsoncore.Value) uint64 {
	t, i, ok := v.TimestampOK()
	if !ok {
		return 0
	}
	return uint64(t)<<32 | uint64(i)
}

// text is the content of a string value.
func text(v bsoncore.Value) []byte {
	if len(v.Data) < 5 {
		return nil
	}
	return v.Data[4 : len(v.Data)-1]
}

func compareNumbers(a, b bsoncore.Value) (int, bool) {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		return cmp.Compare(x, y), true
	}
	if a.Type == bsoncore.TypeDecimal128 || b.Type == bsoncore.TypeDecimal128 {
		return 0, false
	}
	isRounded := xInt && !isExact(x) || yInt && !isExact(y)
	if isRounded {
		return 0, false
	}
	return compareDoubles(a.AsFloat64(), b.AsFloat64()), true
}

// isExact reports whether a double has the value of the integer and no other integer has it.
func isExact(n int64) bool {
	const most = 1 << 53
	return -most <= n && n <= most
}

// compareDoubles puts NaN below every number, as MongoDB does.
func compareDoubles(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return -1
	case math.IsNaN(b):
		return 1
	default:
		return cmp.Compare(a, b)
	}
}

func integer(v bsoncore.Value) (int64, bool) {
	switch v.Type {
	case bsoncore.TypeInt32:
		return int64(v.Int32()), true
	case bsoncore.TypeInt64:
		return v.Int64(), true
	default:
		return 0, false
	}
}

// Sort is a compiled sort specification. The nil Sort keeps the order.
type Sort struct {
	keys []sortKey
	// Natural is 1 or -1 for {$natural: ±1}, else 0.
	Natural int
}

type sortKey struct {
	path       path
	descending bool
}

// ParseSort compiles a sort document; an empty one gives nil.
func ParseSort(d bsoncore.Document) (*Sort, error) {
	if doc.Empty(d) {
		return nil, nil
	}
	s := &Sort{}
	for name, v := range doc.All(d) {
		n, ok := doc.Int(v)
		if !ok || n != 1 && n != -1 {
			return nil, wire.Errorf(wire.BadValue, "Unknown $sort order for key: %s, must be 1 or -1", name)
		}
		if name == "$natural" {
			s.Natural = int(n)
			continue
		}
		s.keys = append(s.keys, sortKey{path: parsePath(name), descending: n < 0})
	}
	return s, nil
}

// ByID reports whether the sort is {_id: 1} or {_id: -1}, and which.
func (s *Sort) ByID() (ascending, ok bool) {
	if s == nil || len(s.keys) != 1 || s.keys[0].path.String() != "_id" {
		return false, false
	}
	return !s.keys[0].descending, true
}

// Apply sorts documents in place, stably.
func (s *Sort) Apply(docs []bsoncore.Document) {
	if s == nil || len(s.keys) == 0 {
		return
	}
	type row struct {
		keys []bsoncore.Value
		doc  bsoncore.Document
	}
	rows := make([]row, len(docs))
	for i, d := range docs {
		rows[i].doc = d
		for _, k := range s.keys {
			rows[i].keys = append(rows[i].keys, k.value(d))
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		for i, k := range s.keys {
			c := Compare(a.keys[i], b.keys[i])
			if k.descending {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	for i := range rows {
		docs[i] = rows[i].doc
	}
}

// value returns the sort value of a document: the smallest of several, or the largest for a
// descending sort; a missing field sorts as null.
func (k sortKey) value(d []byte) bsoncore.Value {
	var best bsoncore.Value
	seen := false
	k.path.visit(d, func(v bsoncore.Value) bool {
		for _, item := range sortable(v) {
			if c := Compare(item, best); !seen || (c < 0) != k.descending && c != 0 {
				best = item
				seen = true
			}
		}
		return false
	})
	return best
}

func sortable(v bsoncore.Value) []bsoncore.Value {
	switch {
	case v.Type == 0:
		return []bsoncore.Value{{Type: bsoncore.TypeNull}}
	case v.Type != bsoncore.TypeArray:
		return []bsoncore.Value{v}
	case doc.Empty(v.Data):
		return []bsoncore.Value{{Type: bsoncore.TypeUndefined}}
	default:
		return slices.Collect(doc.Values(v.Data))
	}
}
