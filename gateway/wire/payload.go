package wire

import (
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/build"
)

// A Format is how payloads are written.
type Format uint8

// The formats.
const (
	BSON Format = iota // the change event as MongoDB sent it, without its token
	JSON               // relaxed Extended JSON of the same
)

// A Shape is the form in which a subscription wants its changes.
type Shape struct {
	Format Format
	// Fields are the top-level fields of documents to keep besides _id, in order; none keeps all.
	Fields []string
}

// Equal reports whether two shapes are the same.
func (s Shape) Equal(t Shape) bool { return s.Format == t.Format && slices.Equal(s.Fields, t.Fields) }

// A Writer writes the payloads of one event, each shape once. It belongs to one goroutine.
type Writer struct {
	// JSON appends a BSON document as relaxed Extended JSON. Required.
	JSON func(b, doc []byte) ([]byte, error)

	event   *change.Event
	written []written
}

type written struct {
	shape   Shape
	payload []byte
}

// Next begins with another event.
func (w *Writer) Next(e *change.Event) { w.event, w.written = e, w.written[:0] }

// Payload returns the event in the shape.
func (w *Writer) Payload(s Shape) ([]byte, error) {
	for _, done := range w.written {
		if done.shape.Equal(s) {
			return done.payload, nil
		}
	}
	payload, err := w.write(s)
	if err != nil {
		return nil, err
	}
	w.written = append(w.written, written{s, payload})
	return payload, nil
}

func (w *Writer) write(s Shape) ([]byte, error) {
	doc := strip(w.event.Raw(), s.Fields)
	if s.Format == BSON {
		return doc, nil
	}
	return w.JSON(nil, doc)
}

// strip copies an event without its token, and with fields only those of its documents. The event has been walked once already, so
// that its elements can be read.
func strip(raw []byte, fields []string) []byte {
	b := make([]byte, 0, len(raw))
	for at := 4; ; {
		name, v, next, err := change.Element(raw, at)
		if err != nil || name == nil {
			break
		}
		at = next
		switch string(name) {
		case "_id":
			continue
		case "fullDocument", "fullDocumentBeforeChange":
			if len(fields) > 0 && v.Document() != nil {
				b = build.AppendDocument(b, string(name), keep(v.Document(), fields, topLevel))
				continue
			}
		case "updateDescription":
			if len(fields) > 0 && v.Document() != nil {
				b = build.AppendDocument(b, string(name), stripUpdate(v.Document(), fields))
				continue
			}
		}
		b = build.AppendValue(b, v.Type, string(name), v.Data)
	}
	return build.Document(b)
}

// stripUpdate keeps what an update says of the fields.
func stripUpdate(doc []byte, fields []string) []byte {
	var b []byte
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return build.Document(b)
		}
		at = next
		switch {
		case string(name) == "updatedFields" && v.Document() != nil:
			b = build.AppendDocument(b, "updatedFields", keep(v.Document(), fields, firstPart))
		case string(name) == "disambiguatedPaths" && v.Document() != nil:
			b = build.AppendDocument(b, "disambiguatedPaths", keep(v.Document(), fields, firstPart))
		default:
			b = build.AppendValue(b, v.Type, string(name), v.Data)
		}
	}
}

func topLevel(name string) string { return name }

// firstPart is the top-level field of a dotted path.
func firstPart(path string) string {
	field, _, _ := strings.Cut(path, ".")
	return field
}

// keep copies _id and those of a document's elements of whose names field makes one of the fields.
func keep(doc []byte, fields []string, field func(string) string) []byte {
	var b []byte
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return build.Document(b)
		}
		at = next
		if string(name) == "_id" || slices.Contains(fields, field(string(name))) {
			b = build.AppendValue(b, v.Type, string(name), v.Data)
		}
	}
}
