package stream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// errSequence reports a fragment that is out of order.
var errSequence = errors.New("a fragment out of sequence")

// An assembly joins the fragments of an event. The zero value waits for a first fragment.
type assembly struct {
	fields  []byte // elements of the fragments so far, without _id and splitEvent
	next    int32  // number of the next fragment, from 1; 0 while no event is pending
	of      int32
	pending bool
}

// isFragment reports whether an event is a fragment: splitEvent is the field after _id.
func isFragment(event []byte) bool {
	const id = 4 + 1 + len("_id\x00")
	if len(event) < id+4 || event[4] != byte(bson.TypeEmbeddedDocument) || string(event[5:id]) != "_id\x00" {
		return false
	}
	n := int(binary.LittleEndian.Uint32(event[id:]))
	rest := event[min(len(event), id+max(n, 0)):]
	const name = "splitEvent\x00"
	return len(rest) > 1+len(name) && rest[0] == byte(bson.TypeEmbeddedDocument) && string(rest[1:1+len(name)]) == name
}

// add takes the next fragment. With the last one it returns the whole event, which has the token of
// the last fragment. A first fragment discards an unfinished event, because a reopened stream
// repeats its fragments.
func (a *assembly) add(fragment bson.Raw) (event bson.Raw, err error) {
	elements, err := fragment.Elements()
	if err != nil {
		return nil, fmt.Errorf("read a fragment: %w", err)
	}
	var part, of int32
	var token bson.RawValue
	var fields []byte
	for _, element := range elements {
		switch element.Key() {
		case "_id":
			token = element.Value()
		case "splitEvent":
			split := element.Value().Document()
			part, _ = split.Lookup("fragment").Int32OK()
			of, _ = split.Lookup("of").Int32OK()
		default:
			fields = append(fields, element...)
		}
	}
	if part == 1 {
		*a = assembly{next: 1, of: of, pending: true}
	}
	if !a.pending || part != a.next || of != a.of {
		return nil, fmt.Errorf("%w: %d of %d where %d of %d was to come", errSequence, part, of, a.next, a.of)
	}
	a.fields = append(a.fields, fields...)
	if a.next++; part < of {
		return nil, nil
	}
	event = joined(token, a.fields)
	*a = assembly{}
	return event, nil
}

// joined builds an event from a token and the other elements.
func joined(token bson.RawValue, fields []byte) bson.Raw {
	size := 4 + 1 + len("_id\x00") + len(token.Value) + len(fields) + 1
	event := make([]byte, 0, size)
	event = binary.LittleEndian.AppendUint32(event, uint32(size))
	event = append(event, byte(token.Type))
	event = append(event, "_id\x00"...)
	event = append(event, token.Value...)
	event = append(event, fields...)
	return append(event, 0)
}
