package change

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// BSON types (bsonspec.org, version 1.1).
const (
	TypeDouble     = 0x01
	TypeString     = 0x02
	TypeDocument   = 0x03
	TypeArray      = 0x04
	TypeBinary     = 0x05
	TypeUndefined  = 0x06
	TypeObjectID   = 0x07
	TypeBool       = 0x08
	TypeDateTime   = 0x09
	TypeNull       = 0x0A
	TypeRegex      = 0x0B
	TypeDBPointer  = 0x0C
	TypeJavaScript = 0x0D
	TypeSymbol     = 0x0E
	TypeCodeScope  = 0x0F
	TypeInt32      = 0x10
	TypeTimestamp  = 0x11
	TypeInt64      = 0x12
	TypeDecimal128 = 0x13
	TypeMinKey     = 0xFF
	TypeMaxKey     = 0x7F
)

// errMalformed says that bytes are not valid BSON.
var errMalformed = errors.New("malformed BSON")

// A Value is a BSON value in place: its type and its bytes, which alias the document. The zero
// Value means that there is none.
type Value struct {
	Type byte
	Data []byte
}

// IsZero reports whether there is no value. A BSON null is a value.
func (v Value) IsZero() bool { return v.Type == 0 }

// Equal reports whether two values have the same bytes.
func (v Value) Equal(w Value) bool { return v.Type == w.Type && bytes.Equal(v.Data, w.Data) }

// Document returns the bytes of an embedded document, nil for another type.
func (v Value) Document() []byte {
	if v.Type != TypeDocument {
		return nil
	}
	return v.Data
}

// Text returns the bytes of a string without length and terminator, nil for another type.
func (v Value) Text() []byte {
	if v.Type != TypeString {
		return nil
	}
	return v.Data[4 : len(v.Data)-1]
}

// Lookup returns the first field with the name in an embedded document, or the zero Value.
func (v Value) Lookup(name string) Value {
	if v.Type != TypeDocument {
		return Value{}
	}
	return lookup(v.Data, name)
}

// Int64 returns the value of an int32 or int64; ok is false for other types.
func (v Value) Int64() (n int64, ok bool) {
	switch v.Type {
	case TypeInt32:
		return int64(int32(binary.LittleEndian.Uint32(v.Data))), true
	case TypeInt64:
		return int64(binary.LittleEndian.Uint64(v.Data)), true
	}
	return 0, false
}

// CodeScope returns the code and the scope of a code with scope.
func (v Value) CodeScope() (code, scope []byte, err error) {
	if v.Type != TypeCodeScope || len(v.Data) < 14 {
		return nil, nil, errMalformed
	}
	rest := v.Data[8:]
	n := uint64(binary.LittleEndian.Uint32(v.Data[4:]))
	if n < 1 || n > uint64(len(rest)) || rest[n-1] != 0 {
		return nil, nil, errMalformed
	}
	scope, err = documentAt(rest[n:])
	if err != nil || len(scope) != len(rest)-int(n) {
		return nil, nil, errMalformed
	}
	return rest[:n-1], scope, nil
}

// Element reads the element at an offset of a document or array; the first is at 4. It returns the
// name, the value, and the offset of the next element. At the end of the document the name is nil.
// It does not check the inside of the value.
func Element(doc []byte, at int) (name []byte, v Value, next int, err error) { return element(doc, at) }

// documentAt returns the document at the start of b, after checking its length and terminator.
func documentAt(b []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, errMalformed
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 5 || uint64(n) > uint64(len(b)) || b[n-1] != 0 {
		return nil, errMalformed
	}
	return b[:n], nil
}

// element is Element.
func element(doc []byte, at int) (name []byte, v Value, next int, err error) {
	if at >= len(doc) {
		return nil, Value{}, 0, errMalformed
	}
	kind := doc[at]
	if kind == 0 {
		if at != len(doc)-1 {
			return nil, Value{}, 0, errMalformed
		}
		return nil, Value{}, at + 1, nil
	}
	end := bytes.IndexByte(doc[at+1:], 0)
	if end < 0 {
		return nil, Value{}, 0, errMalformed
	}
	name = doc[at+1 : at+1+end]
	at += end + 2
	size, err := valueSize(kind, doc[at:])
	if err != nil {
		return nil, Value{}, 0, err
	}
	return name, Value{Type: kind, Data: doc[at : at+size : at+size]}, at + size, nil
}

// valueSize returns the size of a value at the start of b. A value never takes all of b, because a
// document ends with a terminator.
func valueSize(kind byte, b []byte) (int, error) {
	size := 0
	switch kind {
	case TypeNull, TypeUndefined, TypeMinKey, TypeMaxKey:
	case TypeBool:
		size = 1
	case TypeInt32:
		size = 4
	case TypeDouble, TypeDateTime, TypeTimestamp, TypeInt64:
		size = 8
	case TypeObjectID:
		size = 12
	case TypeDecimal128:
		size = 16
	case TypeString, TypeJavaScript, TypeSymbol:
		return stringSize(b)
	case TypeDocument, TypeArray:
		doc, err := documentAt(b)
		size = len(doc)
		if err != nil {
			return 0, err
		}
	case TypeBinary:
		return binarySize(b)
	case TypeRegex:
		return regexSize(b)
	case TypeDBPointer:
		n, err := stringSize(b)
		if err != nil {
			return 0, err
		}
		size = n + 12
	case TypeCodeScope:
		return codeScopeSize(b)
	default:
		return 0, errMalformed
	}
	if size >= len(b) {
		return 0, errMalformed
	}
	return size, nil
}

func stringSize(b []byte) (int, error) {
	if len(b) < 5 {
		return 0, errMalformed
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 1 || uint64(n)+4 >= uint64(len(b)) || b[4+n-1] != 0 {
		return 0, errMalformed
	}
	return int(n) + 4, nil
}

func binarySize(b []byte) (int, error) {
	if len(b) < 5 {
		return 0, errMalformed
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n)+5 >= uint64(len(b)) {
		return 0, errMalformed
	}
	return int(n) + 5, nil
}

func regexSize(b []byte) (int, error) {
	pattern := bytes.IndexByte(b, 0)
	if pattern < 0 {
		return 0, errMalformed
	}
	options := bytes.IndexByte(b[pattern+1:], 0)
	size := pattern + options + 2
	if options < 0 || size >= len(b) {
		return 0, errMalformed
	}
	return size, nil
}

// codeScopeSize returns the size of code with scope: a length, a string and a document.
func codeScopeSize(b []byte) (int, error) {
	if len(b) < 14 {
		return 0, errMalformed
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 14 || uint64(n) >= uint64(len(b)) {
		return 0, errMalformed
	}
	return int(n), nil
}

// lookup returns the first element with the name in doc, or the zero Value if there is none or doc
// is malformed before it.
func lookup(doc []byte, name string) Value {
	for at := 4; ; {
		key, v, next, err := element(doc, at)
		if err != nil || key == nil {
			return Value{}
		}
		if string(key) == name {
			return v
		}
		at = next
	}
}
