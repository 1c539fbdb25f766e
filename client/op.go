package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
)

var errNoBSON = errors.New("not a document")

// opOfBSON returns the operationType of a change event; "" if it cannot be read.
func opOfBSON(doc []byte) string {
	text, _ := stringOf(fieldOfBSON(doc, "operationType"))
	return text
}

// fieldOfBSON walks the top level of a document to a field; value is nil if it cannot be read.
func fieldOfBSON(doc []byte, field string) (kind byte, value []byte) {
	if len(doc) < 5 {
		return 0, nil
	}
	for b := doc[4:]; len(b) > 1; {
		kind := b[0]
		end := bytes.IndexByte(b[1:], 0)
		if end < 0 {
			return 0, nil
		}
		name := b[1 : 1+end]
		b = b[1+end+1:]
		n, err := lengthOf(kind, b)
		if err != nil || n > len(b) {
			return 0, nil
		}
		if string(name) == field {
			return kind, b[:n:n]
		}
		b = b[n:]
	}
	return 0, nil
}

// stringOf returns the text of a BSON string, ok false for another value.
func stringOf(kind byte, value []byte) (text string, ok bool) {
	if kind != 0x02 || len(value) < 5 {
		return "", false
	}
	return string(value[4 : len(value)-1]), true
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

// opOfJSON returns the operationType of a change event in Extended JSON; "" if it cannot be read.
func opOfJSON(text []byte) (op string) {
	if json.Unmarshal(fieldOfJSON(text, "operationType"), &op) != nil {
		return ""
	}
	return op
}

// fieldOfJSON returns a field at the top level of an object without reading the rest of it; nil if
// it cannot be read.
func fieldOfJSON(text []byte, field string) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		if name == field {
			return value
		}
	}
	return nil
}
