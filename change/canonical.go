package change

import (
	"encoding/binary"
	"math"
	"strconv"
)

// MongoDB considers two _ids the same when they compare equal: 1, NumberLong(1), 1.0 and
// NumberDecimal("1") are one _id, also inside an embedded document, and so are a string and a
// symbol with the same text. The canonical form of equal values has the same bytes, that of
// different values different bytes. (MongoDB manual, "Comparison/Sort Order"; the index on _id
// compares likewise.)
//
// A collation of a collection is not considered: there "a" and "A" may be one _id, and are two
// here.

// Tags of the canonical form. They never change, because the partition of every checkpoint depends
// on them.
const (
	canonicalInt     = 0x01 // a whole number that fits 64 bits, big endian two's complement
	canonicalDouble  = 0x02 // a number that a double holds exactly, its IEEE bits big endian
	canonicalDecimal = 0x03 // any other number: its shortest decimal text, 0-terminated
	canonicalText    = 0x04 // string or symbol: length, bytes
	canonicalOther   = 0x05 // BSON type, length, bytes
	canonicalDoc     = 0x06 // BSON type, then name, 0, value per element, then canonicalEnd
	canonicalScope   = 0x07 // code with scope: length and bytes of the code, the scope as a document
	canonicalEscape  = 0xFE // precedes a name that begins with it or with canonicalEnd, as no UTF-8 does
	canonicalEnd     = 0xFF
)

// maxCanonicalDepth bounds the recursion; MongoDB stores at most 250 levels.
const maxCanonicalDepth = 256

// An IDFormat is a version of the canonical form. A cluster's origin names the one by which its
// documents have their partitions.
type IDFormat int

const (
	// FirstIDFormat is that of origins that name none. It differs for rare values: scopes of code
	// count by their bytes, elements of arrays by their names, names that are not UTF-8 are not
	// escaped, and values nest 200 levels deep.
	FirstIDFormat IDFormat = 0
	// LatestIDFormat is that of new clusters and of AppendCanonical.
	LatestIDFormat IDFormat = 1
)

// AppendCanonical appends the canonical form of a value: the same bytes for values that MongoDB
// considers equal, and different bytes for others. Unlike in arithmetic, NaN equals NaN.
func AppendCanonical(b []byte, v Value) []byte { return LatestIDFormat.append(b, v, 0) }

func (f IDFormat) append(b []byte, v Value, depth int) []byte {
	if f.nests(v) && depth < f.maxDepth() {
		if v.Type == TypeCodeScope {
			return f.appendCodeScope(b, v, depth)
		}
		return f.appendDocument(b, v, depth)
	}
	return appendScalar(b, v)
}

func (f IDFormat) maxDepth() int {
	if f == FirstIDFormat {
		return 200
	}
	return maxCanonicalDepth
}

// nests reports whether the value contains values that may be equal and of other bytes.
func (f IDFormat) nests(v Value) bool {
	return v.Type == TypeDocument || v.Type == TypeArray || v.Type == TypeCodeScope && f != FirstIDFormat
}

// appendScalar appends the canonical form of a value that is not nested. It is not recursive, so
// that the caller's buffer stays on the stack.
func appendScalar(b []byte, v Value) []byte {
	switch v.Type {
	case TypeInt32:
		return appendInt(b, int64(int32(binary.LittleEndian.Uint32(v.Data))))
	case TypeInt64:
		return appendInt(b, int64(binary.LittleEndian.Uint64(v.Data)))
	case TypeDouble, TypeDecimal128:
		return appendNumber(b, v)
	case TypeString, TypeSymbol:
		text := v.Data[4 : len(v.Data)-1]
		b = binary.BigEndian.AppendUint32(append(b, canonicalText), uint32(len(text)))
		return append(b, text...)
	}
	b = binary.BigEndian.AppendUint32(append(b, canonicalOther, v.Type), uint32(len(v.Data)))
	return append(b, v.Data...)
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, canonicalInt), uint64(n))
}

func appendNumber(b []byte, v Value) []byte {
	n, _ := v.Number()
	switch n.Type {
	case TypeInt64:
		return appendInt(b, n.Int)
	case TypeDouble:
		return binary.BigEndian.AppendUint64(append(b, canonicalDouble), math.Float64bits(n.Double))
	}
	b = append(append(b, canonicalDecimal), n.Digits...)
	return append(strconv.AppendInt(append(b, 'e'), int64(n.Exponent), 10), 0)
}

func (f IDFormat) appendDocument(b []byte, v Value, depth int) []byte {
	b = append(b, canonicalDoc, v.Type)
	for at, i := 4, int64(0); ; i++ {
		name, inner, next, err := element(v.Data, at)
		if err != nil || name == nil {
			return append(b, canonicalEnd)
		}
		switch {
		case f == FirstIDFormat:
			b = append(b, name...)
		case v.Type == TypeArray: // whose elements have no names in an index
			b = strconv.AppendInt(b, i, 10)
		case len(name) > 0 && name[0] >= canonicalEscape:
			b = append(append(b, canonicalEscape), name...)
		default:
			b = append(b, name...)
		}
		b = f.append(append(b, 0), inner, depth+1)
		at = next
	}
}

func (f IDFormat) appendCodeScope(b []byte, v Value, depth int) []byte {
	code, scope, err := v.CodeScope()
	if err != nil {
		return appendScalar(b, v)
	}
	b = binary.BigEndian.AppendUint32(append(b, canonicalScope), uint32(len(code)))
	return f.append(append(b, code...), Value{Type: TypeDocument, Data: scope}, depth+1)
}
