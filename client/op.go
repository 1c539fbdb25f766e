package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
)

var errNoBSON = errors.New("not a document")

// opOfBSON walks the top level of a change event to its operationType; "" if it cannot be read.
func opOfBSON(doc []byte) string {
	if len(doc) < 5 {
		return ""
	}
	for b := doc[4:]; len(b) > 1; {
		kind := b[0]
		end := bytes.IndexByte(b[1:], 0)
		if end < 0 {
			return ""
		}
		name := b[1 : 1+end]
		b = b[1+end+1:]
		n, err := lengthOf(kind, b)
		if err != nil || n > len(b) {
			return ""
		}
		if string(name) == "operationType" {
			if kind != 0x02 || n < 5 {
				return ""
			}
			return string(b[4 : n-1])
		}
		b = b[n:]
	}
	return ""
}

// lengthOf returns the length of an element's value (bsonspec.org).
func lengthOf(kind byte, b []byte) (int, error) {
	switch kind {
	case 0x06, 0x0a, 0x7f, 0xff: // undefined, null, the keys at both ends
		return 0, nil
	case 0x08: // boolean
		return 1, nil
	case 0x10: // int
		return 4, nil
	case 0x01, 0x09, 0x11, 0x12: // double, date, timestamp, long
		return 8, nil
	case 0x07: // ObjectId
		return 12, nil
	case 0x13: // Decimal128
		return 16, nil
	case 0x0b: // regular expression: two strings that end with a zero
		first := bytes.IndexByte(b, 0)
		if first < 0 {
			return 0, errNoBSON
		}
		second := bytes.IndexByte(b[first+1:], 0)
		if second < 0 {
			return 0, errNoBSON
		}
		return first + second + 2, nil
	}
	if len(b) < 4 {
		return 0, errNoBSON
	}
	n := int64(binary.LittleEndian.Uint32(b))
	switch kind {
	case 0x02, 0x0d, 0x0e: // string, code, symbol
		n += 4
	case 0x03, 0x04, 0x0f: // document, array, code with scope
	case 0x05: // binary
		n += 5
	case 0x0c: // DBPointer
		n += 16
	default:
		return 0, errNoBSON
	}
	if n < 4 || n > int64(len(b)) {
		return 0, errNoBSON
	}
	return int(n), nil
}

// opOfJSON reads the operationType of a change event in Extended JSON without reading what comes
// after it; "" if it cannot be read.
func opOfJSON(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return ""
		}
		if name == "operationType" {
			op, err := d.Token()
			text, ok := op.(string)
			if err != nil || !ok {
				return ""
			}
			return text
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return ""
		}
	}
	return ""
}
