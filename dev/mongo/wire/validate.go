package wire

import (
	"encoding/binary"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxDepth is the deepest nesting of documents that the server accepts.
const maxDepth = 180

// Validate checks one whole document: its length and every element of it, nested documents too. A
// document that passes may be walked without further checks.
func Validate(doc bsoncore.Document) error { return validate(doc, 0) }

func validate(doc []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: documents nest deeper than %d", ErrMalformed, maxDepth)
	}
	n, err := documentLength(doc)
	if err != nil {
		return err
	}
	if n != len(doc) {
		return fmt.Errorf("%w: document of %d bytes in %d", ErrMalformed, n, len(doc))
	}
	rest := doc[4 : n-1]
	for len(rest) > 0 {
		if rest, err = validateElement(rest, depth); err != nil {
			return err
		}
	}
	return nil
}

func documentLength(buf []byte) (int, error) {
	if len(buf) < 5 {
		return 0, fmt.Errorf("%w: short document", ErrMalformed)
	}
	n := int64(binary.LittleEndian.Uint32(buf))
	if n < 5 || n > int64(len(buf)) || buf[n-1] != 0 {
		return 0, fmt.Errorf("%w: document of %d bytes in %d", ErrMalformed, n, len(buf))
	}
	return int(n), nil
}

func validateElement(buf []byte, depth int) ([]byte, error) {
	kind := bsoncore.Type(buf[0])
	_, rest, ok := bsoncore.ReadKeyBytes(buf[1:])
	if !ok {
		return nil, fmt.Errorf("%w: element without a name", ErrMalformed)
	}
	v, rest, ok := bsoncore.ReadValue(rest, kind)
	if !ok {
		return nil, fmt.Errorf("%w: element of type %#x", ErrMalformed, byte(kind))
	}
	return rest, validateValue(v, depth)
}

func validateValue(v bsoncore.Value, depth int) error {
	ok := true
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		return validate(v.Data, depth+1)
	case bsoncore.TypeString, bsoncore.TypeJavaScript, bsoncore.TypeSymbol:
		ok = validString(v.Data)
	case bsoncore.TypeBinary:
		_, _, ok = v.BinaryOK()
	case bsoncore.TypeRegex:
		_, _, ok = v.RegexOK()
	case bsoncore.TypeDBPointer:
		ok = validString(v.Data[:max(0, len(v.Data)-12)])
	case bsoncore.TypeCodeWithScope:
		return validateCode(v.Data, depth)
	case bsoncore.TypeBoolean:
		ok = len(v.Data) == 1 && v.Data[0] <= 1
	default:
		// Fixed sizes: ReadValue has checked them.
	}
	if !ok {
		return fmt.Errorf("%w: value of type %#x", ErrMalformed, byte(v.Type))
	}
	return nil
}

// validString checks that data is exactly one length-prefixed string with its closing NUL.
func validString(data []byte) bool {
	if len(data) < 5 {
		return false
	}
	n := int64(binary.LittleEndian.Uint32(data))
	return n >= 1 && n == int64(len(data)-4) && data[len(data)-1] == 0
}

func validateCode(data []byte, depth int) error {
	bad := fmt.Errorf("%w: code with scope", ErrMalformed)
	if len(data) < 4+5+5 {
		return bad
	}
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	if n < 1 || 8+n+5 > int64(len(data)) || data[8+n-1] != 0 {
		return bad
	}
	return validate(data[8+n:], depth+1)
}
