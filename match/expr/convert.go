package expr

import (
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// The scalars of Go's values.

// IntScalar makes a scalar of an integer.
func IntScalar(i int64) Scalar { return Scalar{Class: Number, num: intNumber(i)} }

// uintScalar makes a scalar of an integer that may be larger than an int64.
func uintScalar(u uint64) Scalar { return Scalar{Class: Number, num: uintNumber(u)} }

// DoubleScalar makes a scalar of a double.
func DoubleScalar(f float64) Scalar { return Scalar{Class: Number, num: doubleNumber(f)} }

// textScalar makes a scalar of the bytes of a string.
func textScalar(text []byte) Scalar { return Scalar{Class: Text, text: text} }

// bytesScalar makes a scalar of binary data of subtype 0.
func bytesScalar(data []byte) Scalar { return Scalar{Class: Bytes, text: data} }

// boolScalar makes a scalar of a truth value.
func boolScalar(b bool) Scalar { return Scalar{Class: Bool, num: number{i: int64(btoi(b))}} }

// dateScalar makes a scalar of an instant.
func dateScalar(t time.Time) Scalar {
	return Scalar{Class: Date, num: number{i: t.UnixMilli(), near: float64(t.Nanosecond() % int(time.Millisecond))}}
}

// The subtypes of UUIDs. In a filter those of the old one are UUIDs by their bytes; some drivers
// wrote these in an order of their own.
const (
	oldUUIDSubtype = 3
	uuidSubtype    = 4
)

var (
	errObjectID = errors.New("an ObjectId is 24 hexadecimal digits")
	errUUID     = errors.New("a UUID is 32 hexadecimal digits, with hyphens or without")
)

// parseObjectID makes a scalar of an ObjectId in hexadecimal.
func parseObjectID(text string) (Scalar, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 12 {
		return Scalar{}, errObjectID
	}
	return Scalar{Class: ObjectID, text: b}, nil
}

// parseUUID makes a scalar of a UUID: binary data of subtype 4.
func parseUUID(text string) (Scalar, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		return Scalar{}, errUUID
	}
	return Scalar{Class: Binary, text: b, tag: uuidSubtype}, nil
}

// parseNumber makes a scalar of a decimal number: see parseDecimal.
func parseNumber(text string) (Scalar, error) {
	d, err := parseDecimal(text)
	if err != nil {
		return Scalar{}, err
	}
	return Scalar{Class: Number, num: decimalNumber(d)}, nil
}

// Int returns the integer of a number that is one.
func (s Scalar) Int() (i int64, ok bool) { return s.num.i, s.Class == Number && s.num.kind == integer }

// Double returns the double of a number that is one.
func (s Scalar) Double() (f float64, ok bool) {
	return s.num.near, s.Class == Number && s.num.kind == double
}

// nearest returns the double next to a number.
func (s Scalar) nearest() float64 { return s.num.near }

// Bool returns a truth value.
func (s Scalar) Bool() bool { return s.num.i != 0 }

// Time returns an instant in UTC.
func (s Scalar) Time() time.Time { return time.UnixMilli(s.num.i).Add(time.Duration(s.num.near)).UTC() }

// Text returns the bytes of a Text, Bytes, Binary or ObjectID.
func (s Scalar) Text() []byte { return s.text }

// isUUID reports whether the scalar is a UUID.
func (s Scalar) isUUID() bool { return s.Class == Binary && s.tag == uuidSubtype && len(s.text) == 16 }

// decimalText returns a Decimal128 as digits and a power of ten.
func (s Scalar) decimalText() string { return s.num.dec.String() }
