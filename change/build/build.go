package build

import "encoding/binary"

// Document wraps elements into a document.
func Document(elements []byte) []byte {
	b := make([]byte, 0, len(elements)+5)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(elements)+5))
	return append(append(b, elements...), 0)
}

// AppendValue appends an element of any type whose value is given as BSON.
func AppendValue(b []byte, kind byte, name string, value []byte) []byte {
	return append(append(append(append(b, kind), name...), 0), value...)
}

// AppendDocument appends an embedded document.
func AppendDocument(b []byte, name string, doc []byte) []byte {
	return AppendValue(b, 0x03, name, doc)
}

// AppendString appends a string.
func AppendString(b []byte, name, s string) []byte {
	b = binary.LittleEndian.AppendUint32(AppendValue(b, 0x02, name, nil), uint32(len(s)+1))
	return append(append(b, s...), 0)
}

// AppendInt64 appends a 64-bit integer.
func AppendInt64(b []byte, name string, n int64) []byte {
	return binary.LittleEndian.AppendUint64(AppendValue(b, 0x12, name, nil), uint64(n))
}

// AppendTrue appends the boolean true.
func AppendTrue(b []byte, name string) []byte {
	return append(AppendValue(b, 0x08, name, nil), 1)
}

// AppendTimestamp appends a timestamp of t seconds and the increment i.
func AppendTimestamp(b []byte, name string, t, i uint32) []byte {
	b = binary.LittleEndian.AppendUint32(AppendValue(b, 0x11, name, nil), i)
	return binary.LittleEndian.AppendUint32(b, t)
}

// Begin appends the front of a document whose elements follow; End ends it.
func Begin(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// End ends the document that Begin has begun at the offset.
func End(b []byte, begun int) []byte {
	b = append(b, 0)
	binary.LittleEndian.PutUint32(b[begun:], uint32(len(b)-begun))
	return b
}
