package change

import (
	"crypto/sha256"
	"encoding/binary"
	"unicode/utf8"
)

// KeyHashSize is the size of a KeyHash in bytes.
const KeyHashSize = 16

// KeyHash returns a hash of an _id, by which a page begins where the _id is too long to be named.
func KeyHash(id Value) []byte {
	h := sha256.New()
	h.Write([]byte{id.Type})
	h.Write(id.Data)
	return h.Sum(nil)[:KeyHashSize]
}

// Before returns a value of at most size bytes (at least 16) that comes before an _id in MongoDB's
// order, as close as its type allows: of a text its beginning, otherwise the first value of its
// type.
func Before(id Value, size int) Value {
	switch id.Type {
	case TypeString, TypeJavaScript, TypeSymbol:
		const around = 5 // the length, and 0 at the end
		text := id.Data[4 : len(id.Data)-1]
		text = text[:min(len(text), size-around)]
		for len(text) > 0 && !utf8.Valid(text) && utf8.Valid(id.Data[4:len(id.Data)-1]) { // no half characters
			text = text[:len(text)-1]
		}
		data := binary.LittleEndian.AppendUint32(nil, uint32(len(text)+1))
		return Value{Type: id.Type, Data: append(append(data, text...), 0)}
	case TypeDocument:
		return Value{Type: id.Type, Data: []byte{5, 0, 0, 0, 0}}
	case TypeBinary:
		return Value{Type: id.Type, Data: []byte{0, 0, 0, 0, 0}}
	}
	return Value{Type: TypeMinKey}
}
