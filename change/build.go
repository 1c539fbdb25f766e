package change

import "encoding/binary"

// WrapDocument returns a document with the elements.
func WrapDocument(elements []byte) []byte {
	b := make([]byte, 0, len(elements)+5)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(elements)+5))
	return append(append(b, elements...), 0)
}

// AppendElement appends an element with a BSON value of any type.
func AppendElement(b []byte, kind byte, name string, value []byte) []byte {
	return append(append(append(append(b, kind), name...), 0), value...)
}

// AppendDocument appends an embedded document.
func AppendDocument(b []byte, name string, doc []byte) []byte {
	return AppendElement(b, 0x03, name, doc)
}

// AppendString appends a string.
func AppendString(b []byte, name, s string) []byte {
	b = binary.LittleEndian.AppendUint32(AppendElement(b, 0x02, name, nil), uint32(len(s)+1))
	return append(append(b, s...), 0)
}

// AppendInt64 appends a 64-bit integer.
func AppendInt64(b []byte, name string, n int64) []byte {
	return binary.LittleEndian.AppendUint64(AppendElement(b, 0x12, name, nil), uint64(n))
}

// AppendTimestamp appends a timestamp of t seconds and increment i.
func AppendTimestamp(b []byte, name string, t, i uint32) []byte {
	b = binary.LittleEndian.AppendUint32(AppendElement(b, 0x11, name, nil), i)
	return binary.LittleEndian.AppendUint32(b, t)
}

// BeginDocument begins a document. Append elements, then call EndDocument.
func BeginDocument(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// EndDocument ends the document that BeginDocument began at the offset.
func EndDocument(b []byte, begun int) []byte {
	b = append(b, 0)
	binary.LittleEndian.PutUint32(b[begun:], uint32(len(b)-begun))
	return b
}
