package doc

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// DecodeKey reads a key and its type bits (nil for none) back into values. It stops at the closing byte, or at
// the end of the key. The values do not alias key.
func DecodeKey(key, typeBits []byte) ([]bsoncore.Value, error) {
	bits, err := newBitReader(typeBits)
	if err != nil {
		return nil, err
	}
	d := &keyDecoder{rest: key, bits: bits}
	var values []bsoncore.Value
	for len(d.rest) > 0 && d.rest[0] != end {
		v, err := d.next(0)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

type keyDecoder struct {
	rest []byte
	bits *bitReader
}

func (d *keyDecoder) take(n int) ([]byte, error) {
	if n > len(d.rest) {
		return nil, wire.PastEnd(n, len(d.rest))
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}

func (d *keyDecoder) byte() (byte, error) {
	b, err := d.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (d *keyDecoder) uint64(inverted bool) (uint64, error) {
	b, err := d.take(8)
	if err != nil {
		return 0, err
	}
	v := binary.BigEndian.Uint64(b)
	if inverted {
		v = ^v
	}
	return v, nil
}

// next reads a value with its type byte.
func (d *keyDecoder) next(depth int) (bsoncore.Value, error) {
	kind, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	return d.value(kind, depth)
}

func (d *keyDecoder) value(kind byte, depth int) (bsoncore.Value, error) {
	if depth > maxDepth {
		return bsoncore.Value{}, wire.KeyString(wire.Overflow, "KeyString encoding exceeded maximum allowable BSON nesting depth")
	}
	switch kind {
	case typeString:
		return d.text()
	case typeObject:
		b, err := d.fields(depth)
		return value(bsoncore.TypeEmbeddedDocument, b, err)
	case typeArray:
		return d.array(depth)
	case typeBinary:
		return d.binary()
	case typeObjectID:
		b, err := d.take(12)
		return value(bsoncore.TypeObjectID, bytes.Clone(b), err)
	case typeDate:
		v, err := d.uint64(false)
		return value(bsoncore.TypeDateTime, bsoncore.AppendInt64(nil, int64(v^1<<63)), err)
	case typeTimestamp:
		v, err := d.uint64(false)
		return value(bsoncore.TypeTimestamp, bsoncore.AppendTimestamp(nil, uint32(v>>32), uint32(v)), err)
	case typeFalse, typeTrue:
		return value(bsoncore.TypeBoolean, []byte{kind - typeFalse}, nil)
	case typeMinKey:
		return bsoncore.Value{Type: bsoncore.TypeMinKey}, nil
	case typeMaxKey:
		return bsoncore.Value{Type: bsoncore.TypeMaxKey}, nil
	case typeNull:
		return bsoncore.Value{Type: bsoncore.TypeNull}, nil
	case typeUndefined:
		return bsoncore.Value{Type: bsoncore.TypeUndefined}, nil
	default:
		return d.rare(kind, depth)
	}
}

// rare reads the types that few documents have, and the numbers.
func (d *keyDecoder) rare(kind byte, depth int) (bsoncore.Value, error) {
	switch kind {
	case typeRegex:
		pattern, err := d.cstring()
		if err != nil {
			return bsoncore.Value{}, err
		}
		options, err := d.cstring()
		return value(bsoncore.TypeRegex, bsoncore.AppendRegex(nil, pattern, options), err)
	case typeDBPointer:
		return d.pointer()
	case typeCode:
		s, err := d.escaped()
		return value(bsoncore.TypeJavaScript, bsoncore.AppendString(nil, s), err)
	case typeCodeScoped:
		s, err := d.escaped()
		if err != nil {
			return bsoncore.Value{}, err
		}
		scope, err := d.fields(depth + 1)
		return value(bsoncore.TypeCodeWithScope, bsoncore.AppendCodeWithScope(nil, s, scope), err)
	default:
		if kind >= numberNaN && kind <= numberPositiveLarge {
			return d.number(kind)
		}
		return bsoncore.Value{}, wire.KeyString(50811, "Unknown type: "+strconv.Itoa(int(kind)))
	}
}

func value(kind bsoncore.Type, data []byte, err error) (bsoncore.Value, error) {
	if err != nil {
		return bsoncore.Value{}, err
	}
	return bsoncore.Value{Type: kind, Data: data}, nil
}

// fields reads a document's elements up to the closing zero.
func (d *keyDecoder) fields(depth int) ([]byte, error) {
	at, out := bsoncore.AppendDocumentStart(nil)
	for {
		more, err := d.byte()
		if err != nil {
			return nil, err
		}
		if more == 0 {
			return bsoncore.AppendDocumentEnd(out, at)
		}
		name, err := d.cstring()
		if err != nil {
			return nil, err
		}
		v, err := d.next(depth + 1)
		if err != nil {
			return nil, err
		}
		out = bsoncore.AppendValueElement(out, name, v)
	}
}

func (d *keyDecoder) array(depth int) (bsoncore.Value, error) {
	at, out := bsoncore.AppendArrayStart(nil)
	for i := 0; ; i++ {
		kind, err := d.byte()
		if err != nil {
			return bsoncore.Value{}, err
		}
		if kind == 0 {
			out, err = bsoncore.AppendArrayEnd(out, at)
			return value(bsoncore.TypeArray, out, err)
		}
		v, err := d.value(kind, depth+1)
		if err != nil {
			return bsoncore.Value{}, err
		}
		out = bsoncore.AppendValueElement(out, strconv.Itoa(i), v)
	}
}

func (d *keyDecoder) text() (bsoncore.Value, error) {
	kind, err := d.bits.get(1)
	if err != nil {
		return bsoncore.Value{}, err
	}
	s, err := d.escaped()
	if kind == 1 {
		return value(bsoncore.TypeSymbol, bsoncore.AppendString(nil, s), err)
	}
	return value(bsoncore.TypeString, bsoncore.AppendString(nil, s), err)
}

// cstring reads up to the next NUL.
func (d *keyDecoder) cstring() (string, error) {
	i := bytes.IndexByte(d.rest, 0)
	if i < 0 {
		return "", wire.KeyString(50816, "Failed to find null terminator in string.")
	}
	s := string(d.rest[:i])
	d.rest = d.rest[i+1:]
	return s, nil
}

// escaped reads a string in which NUL 0xff stands for a NUL.
func (d *keyDecoder) escaped() (string, error) {
	var out string
	for {
		part, err := d.cstring()
		if err != nil {
			return "", err
		}
		out += part
		if len(d.rest) == 0 || d.rest[0] != 0xff {
			return out, nil
		}
		out += "\x00"
		d.rest = d.rest[1:]
	}
}

func (d *keyDecoder) binary() (bsoncore.Value, error) {
	short, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	size := int(short)
	if short == 0xff {
		long, err := d.take(4)
		if err != nil {
			return bsoncore.Value{}, err
		}
		size = int(binary.BigEndian.Uint32(long))
	}
	subtype, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	data, err := d.take(size)
	if err != nil {
		return bsoncore.Value{}, err
	}
	return value(bsoncore.TypeBinary, bsoncore.AppendBinary(nil, subtype, data), nil)
}

func (d *keyDecoder) pointer() (bsoncore.Value, error) {
	size, err := d.take(4)
	if err != nil {
		return bsoncore.Value{}, err
	}
	ns, err := d.take(int(binary.BigEndian.Uint32(size)))
	if err != nil {
		return bsoncore.Value{}, err
	}
	id, err := d.take(12)
	if err != nil {
		return bsoncore.Value{}, err
	}
	return value(bsoncore.TypeDBPointer, bsoncore.AppendDBPointer(nil, string(ns), [12]byte(id)), nil)
}
