package expr

import (
	"encoding/binary"
	"math"

	"github.com/mongostream/streamer/change"
)

// A Constant is a scalar of a filter, with its key in the index.
type Constant struct {
	Scalar
	// Key is what AppendKey appends.
	Key []byte
}

// newConstant returns the constant for a scalar. ok is false for null, NaN, documents, arrays, and
// dates that BSON cannot represent.
func newConstant(s Scalar) (c Constant, ok bool) {
	v, ok := s.encode()
	if !ok || s.IsNaN() {
		return Constant{}, false
	}
	return Constant{Scalar: s, Key: AppendKey(nil, v)}, true
}

// AppendKey appends a key that is the same for equal scalars only. NaN, which equals nothing, has a
// key too.
func AppendKey(b []byte, v change.Value) []byte {
	if v.Type == change.TypeBool && v.Data[0] > 1 {
		// Whatever is not zero is true; a server only sends 1.
		v.Data = []byte{1}
	}
	if v.Type == change.TypeBinary && v.Data[4] == oldUUIDSubtype && len(v.Data) == 5+16 {
		data := append([]byte(nil), v.Data...)
		data[4] = uuidSubtype
		v.Data = data
	}
	return change.AppendCanonical(b, v)
}

// encode returns the BSON value of a scalar.
func (s Scalar) encode() (v change.Value, ok bool) {
	switch s.Class {
	case Number:
		return s.num.encode(), true
	case Text:
		data := binary.LittleEndian.AppendUint32(nil, uint32(len(s.text)+1))
		return change.Value{Type: change.TypeString, Data: append(append(data, s.text...), 0)}, true
	case Bytes, Binary:
		data := binary.LittleEndian.AppendUint32(nil, uint32(len(s.text)))
		return change.Value{Type: change.TypeBinary, Data: append(append(data, s.tag), s.text...)}, true
	case Bool:
		return change.Value{Type: change.TypeBool, Data: []byte{byte(s.num.i)}}, true
	case Date:
		// BSON's dates are whole milliseconds: an instant between two equals no field, and the
		// evaluation says so.
		return change.Value{Type: change.TypeDateTime, Data: binary.LittleEndian.AppendUint64(nil, uint64(s.num.i))}, s.num.near == 0
	case ObjectID:
		return change.Value{Type: change.TypeObjectID, Data: s.text}, true
	case Absent, Opaque, Document, Array:
	}
	return change.Value{}, false
}

func (n number) encode() change.Value {
	switch n.kind {
	case integer:
		return change.Value{Type: change.TypeInt64, Data: binary.LittleEndian.AppendUint64(nil, uint64(n.i))}
	case double:
		return change.Value{Type: change.TypeDouble, Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(n.near))}
	}
	return change.Value{Type: change.TypeDecimal128, Data: n.dec.append(nil)}
}
