package stream

import (
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/change"
)

// RelaxedJSON appends an event to b as relaxed Extended JSON without its resume token, which names the document's key and is of
// no use to a subscriber: positions are handed out in another form. The text is one line. (MongoDB Extended JSON v2.)
func RelaxedJSON(b []byte, e *change.Event) ([]byte, error) { return appendJSON(b, e.Raw(), "_id") }

// DocumentJSON appends a BSON document to b as relaxed Extended JSON, in one line.
func DocumentJSON(b, doc []byte) ([]byte, error) { return appendJSON(b, doc, "") }

func appendJSON(b, raw []byte, without string) ([]byte, error) {
	if points(raw) {
		var err error
		if raw, err = escaped(raw); err != nil {
			return b, fmt.Errorf("read an event: %w", err)
		}
	}
	elements, err := bson.Raw(raw).Elements()
	if err != nil {
		return b, fmt.Errorf("read an event: %w", err)
	}
	doc := make(bson.D, 0, len(elements))
	for _, element := range elements {
		if key := element.Key(); key != without {
			doc = append(doc, bson.E{Key: key, Value: element.Value()})
		}
	}
	text, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		return b, fmt.Errorf("write an event as JSON: %w", err)
	}
	return append(b, text...), nil
}

// The driver writes the namespace of a DBPointer, which whoever writes documents chooses, as it is: a quote in it ends the string, a line
// break the line. So it is given to the driver as it stands in JSON.

// points reports whether there is a DBPointer in the document. It allocates nothing.
func points(doc []byte) bool {
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return false
		}
		at = next
		switch bsoncore.Type(v.Type) {
		case bsoncore.TypeDBPointer:
			return true
		case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
			if points(v.Data) {
				return true
			}
		case bsoncore.TypeCodeWithScope:
			if _, scope, ok := (bsoncore.Value{Type: bsoncore.TypeCodeWithScope, Data: v.Data}).CodeWithScopeOK(); ok && points(scope) {
				return true
			}
		default:
		}
	}
}

// escaped returns the document with the namespaces of its DBPointers as they stand in JSON.
func escaped(doc bsoncore.Document) (bsoncore.Document, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, fmt.Errorf("escape a document: %w", err)
	}
	at, b := bsoncore.AppendDocumentStart(nil)
	for _, element := range elements {
		key, err := element.KeyErr()
		if err != nil {
			return nil, fmt.Errorf("escape a document: %w", err)
		}
		v, err := element.ValueErr()
		if err != nil {
			return nil, fmt.Errorf("escape a document: %w", err)
		}
		if v, err = escapedValue(v); err != nil {
			return nil, err
		}
		b = bsoncore.AppendValueElement(b, key, v)
	}
	b, err = bsoncore.AppendDocumentEnd(b, at)
	if err != nil {
		return nil, fmt.Errorf("escape a document: %w", err)
	}
	return b, nil
}

// escapedValue is the same for a value of a document.
func escapedValue(v bsoncore.Value) (_ bsoncore.Value, err error) {
	switch v.Type {
	case bsoncore.TypeDBPointer:
		ns, id, ok := v.DBPointerOK()
		if !ok {
			return v, fmt.Errorf("escape a namespace: %w", change.ErrEvent)
		}
		text, err := json.Marshal(ns)
		if err != nil {
			return v, fmt.Errorf("escape a namespace: %w", err)
		}
		v.Data = bsoncore.AppendDBPointer(nil, string(text[1:len(text)-1]), id)
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		v.Data, err = escaped(v.Data)
	case bsoncore.TypeCodeWithScope:
		code, scope, ok := v.CodeWithScopeOK()
		if !ok {
			return v, fmt.Errorf("escape code: %w", change.ErrEvent)
		}
		if scope, err = escaped(scope); err == nil {
			v.Data = bsoncore.AppendCodeWithScope(nil, code, scope)
		}
	default:
	}
	return v, err
}
