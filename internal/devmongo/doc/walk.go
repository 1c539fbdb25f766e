package doc

import (
	"iter"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// All yields the elements of a document, or of an array with "0", "1", … as names, in order.
func All(d []byte) iter.Seq2[string, bsoncore.Value] {
	return func(yield func(string, bsoncore.Value) bool) {
		for rest := body(d); len(rest) > 0; {
			key, v, next, ok := read(rest)
			if !ok || !yield(string(key), v) {
				return
			}
			rest = next
		}
	}
}

// Values yields the values of an array in order.
func Values(d []byte) iter.Seq[bsoncore.Value] {
	return func(yield func(bsoncore.Value) bool) {
		for rest := body(d); len(rest) > 0; {
			_, v, next, ok := read(rest)
			if !ok || !yield(v) {
				return
			}
			rest = next
		}
	}
}

// Field returns the first element of that name.
func Field(d []byte, name string) (bsoncore.Value, bool) {
	for rest := body(d); len(rest) > 0; {
		key, v, next, ok := read(rest)
		if !ok {
			break
		}
		if string(key) == name {
			return v, true
		}
		rest = next
	}
	return bsoncore.Value{}, false
}

// Path follows dotted names through embedded documents only: arrays are not entered.
func Path(d []byte, path string) (bsoncore.Value, bool) {
	for {
		head, tail, more := strings.Cut(path, ".")
		v, ok := Field(d, head)
		if !ok || !more {
			return v, ok
		}
		if v.Type != bsoncore.TypeEmbeddedDocument {
			return bsoncore.Value{}, false
		}
		d, path = v.Data, tail
	}
}

// First returns the first element, whose name is a command's name or a stage's.
func First(d []byte) (string, bsoncore.Value, bool) {
	for name, v := range All(d) {
		return name, v, true
	}
	return "", bsoncore.Value{}, false
}

// Len counts the elements.
func Len(d []byte) int {
	n := 0
	for range Values(d) {
		n++
	}
	return n
}

// Empty reports whether the document has no elements.
func Empty(d []byte) bool { return len(d) <= 5 }

// Offset returns where the named element begins in the document, type byte included.
func Offset(d []byte, name string) (int, bool) {
	for rest := body(d); len(rest) > 0; {
		key, _, next, ok := read(rest)
		if !ok {
			break
		}
		if string(key) == name {
			return len(d) - 1 - len(rest), true
		}
		rest = next
	}
	return 0, false
}

// Int reads any number as int64; doubles are truncated.
func Int(v bsoncore.Value) (int64, bool) {
	switch v.Type {
	case bsoncore.TypeInt32:
		return int64(v.Int32()), true
	case bsoncore.TypeInt64:
		return v.Int64(), true
	case bsoncore.TypeDouble:
		f := v.Double()
		return int64(f), f == f && f > -1e18 && f < 1e18
	default:
		return 0, false
	}
}

// Truth reads a value as MongoDB reads an option: a bool, or a number that is not zero.
func Truth(v bsoncore.Value) bool {
	if v.Type == bsoncore.TypeBoolean {
		return v.Boolean()
	}
	if v.Type == bsoncore.TypeDouble {
		return v.Double() != 0
	}
	n, ok := Int(v)
	return ok && n != 0
}

// Clone copies a document out of the buffer it was read from.
func Clone(d []byte) bsoncore.Document { return append(bsoncore.Document(nil), d...) }

func body(d []byte) []byte {
	if len(d) < 5 {
		return nil
	}
	return d[4 : len(d)-1]
}

func read(rest []byte) (key []byte, v bsoncore.Value, next []byte, ok bool) {
	kind := bsoncore.Type(rest[0])
	key, next, ok = bsoncore.ReadKeyBytes(rest[1:])
	if !ok {
		return nil, v, nil, false
	}
	v, next, ok = bsoncore.ReadValue(next, kind)
	return key, v, next, ok
}
