package doc

import (
	"encoding/binary"
)

// Values of the two bits of a number.
const (
	bitsInt     = 0
	bitsLong    = 1
	bitsDouble  = 2
	bitsDecimal = 3 // six bits of the exponent follow; for a zero, three more bits of its kind
)

// Kinds of zeros that are no plain ones, and the bits of a decimal's exponent.
const (
	bitsNegativeZero = 0x18 // five bits: -0.0
	bitsDecimalZero  = 0x1a // five bits: the first of six kinds of decimal zero, twelve bits follow
	exponentBits     = 6
)

const (
	shortBits  = 127 // longest data with a one-byte size
	longMarker = 0x80
)

// bitWriter packs bits from low to high. The zero value is ready.
type bitWriter struct {
	data []byte
	n    int
	any  bool
}

// reset forgets the bits.
func (w *bitWriter) reset() { w.data, w.n, w.any = w.data[:0], 0, false }

// put appends the low count bits of v, the highest of them first.
func (w *bitWriter) put(v uint32, count int) {
	for i := count - 1; i >= 0; i-- {
		if w.n%8 == 0 {
			w.data = append(w.data, 0)
		}
		if v>>i&1 == 1 {
			w.data[w.n/8] |= 1 << (w.n % 8)
			w.any = true
		}
		w.n++
	}
}

// encode returns the bits with their size, nil when all are zero.
func (w *bitWriter) encode() []byte {
	if !w.any {
		return nil
	}
	switch n := len(w.data); {
	case n > shortBits:
		out := binary.LittleEndian.AppendUint32([]byte{longMarker}, uint32(n))
		return append(out, w.data...)
	case n == 1 && w.data[0]&longMarker == 0:
		return []byte{w.data[0]}
	default:
		return append([]byte{longMarker | byte(n)}, w.data...)
	}
}

// bitReader reads what Encode wrote; without data every bit is zero.
type bitReader struct {
	data []byte
	n    int
}

// newBitReader takes encoded bits; none at all are zeros for ever.
func newBitReader(encoded []byte) (*bitReader, error) {
	if len(encoded) == 0 || encoded[0] == 0 {
		return &bitReader{}, nil
	}
	first, rest := encoded[0], encoded[1:]
	switch {
	case first < longMarker:
		return &bitReader{data: encoded[:1]}, nil
	case first > longMarker:
		return takeBits(rest, int64(first&^longMarker))
	case len(rest) < 4:
		return nil, pastEnd(4, len(rest))
	default:
		n := int64(binary.LittleEndian.Uint32(rest))
		if n <= shortBits {
			return nil, keyError(50910, "Invalid overlong encoding.")
		}
		return takeBits(rest[4:], n)
	}
}

func takeBits(data []byte, n int64) (*bitReader, error) {
	if n > int64(len(data)) {
		return nil, pastEnd(int(n), len(data))
	}
	return &bitReader{data: data[:n]}, nil
}

// get reads count bits as a number.
func (r *bitReader) get(count int) (uint32, error) {
	if r.data == nil {
		return 0, nil
	}
	var v uint32
	for range count {
		if r.n/8 >= len(r.data) {
			return 0, keyError(50615, "Invalid size byte(s).")
		}
		v = v<<1 | uint32(r.data[r.n/8]>>(r.n%8)&1)
		r.n++
	}
	return v, nil
}
