package streamer

import (
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
)

// A Format is the encoding of payloads.
type Format uint8

// The formats.
const (
	BSON Format = iota // the change event as MongoDB sent it, without its token
	JSON               // the same in relaxed Extended JSON
)

// A Form is the encoding and projection that a subscription requests.
type Form struct {
	Format Format
	// Fields are the top-level document fields to keep in addition to _id, in order; empty keeps all.
	Fields []string
}

// Equal reports whether two forms are equal.
func (f Form) Equal(g Form) bool { return f.Format == g.Format && slices.Equal(f.Fields, g.Fields) }

// A Writer encodes an event in the requested forms, each once. It must not be used concurrently.
type Writer struct {
	event   *change.Event
	written []written // forms of the current event; the buffers are reused
	used    int
	bson    []byte
	cost    int // of what it has encoded, in units of match.MaxCost; what is copied does not count
}

// encodedBytes is how many bytes cost a unit when they are encoded.
const encodedBytes = 2

type written struct {
	form    Form
	payload []byte
}

// Next sets the event.
func (w *Writer) Next(e *change.Event) { w.event, w.used = e, 0 }

// Append appends the event in the form.
func (w *Writer) Append(b []byte, f Form) ([]byte, error) {
	if f.Format == BSON && len(f.Fields) == 0 {
		return appendStripped(b, w.event.Raw(), nil), nil
	}
	for _, done := range w.written[:w.used] {
		if done.form.Equal(f) {
			return append(b, done.payload...), nil
		}
	}
	if w.used == len(w.written) {
		w.written = append(w.written, written{})
	}
	next := &w.written[w.used]
	next.form, next.payload = f, next.payload[:0]
	if f.Format == BSON {
		next.payload = appendStripped(next.payload, w.event.Raw(), f.Fields)
	} else {
		w.bson = appendStripped(w.bson[:0], w.event.Raw(), f.Fields)
		var err error
		if next.payload, err = extjson.Append(next.payload, w.bson); err != nil {
			return b, err
		}
	}
	w.used++
	w.cost += 1 + len(next.payload)/encodedBytes
	return append(b, next.payload...), nil
}

// appendStripped appends an event without its token and, with fields, only these fields of its documents. The event has been parsed before,
// so its elements are valid.
func appendStripped(b, raw []byte, fields []string) []byte {
	begun := len(b)
	b = change.BeginDocument(b)
	for at := 4; ; {
		name, v, next, err := change.Element(raw, at)
		if err != nil || name == nil {
			return change.EndDocument(b, begun)
		}
		element := raw[at:next]
		at = next
		switch string(name) {
		case "_id":
			if len(fields) == 0 { // the rest is copied unchanged
				return change.EndDocument(append(b, raw[at:len(raw)-1]...), begun)
			}
			continue
		case "fullDocument", "fullDocumentBeforeChange":
			if len(fields) > 0 && v.Document() != nil {
				b = change.AppendDocument(b, string(name), keep(v.Document(), fields, topLevel))
				continue
			}
		case "updateDescription":
			if len(fields) > 0 && v.Document() != nil {
				b = change.AppendDocument(b, string(name), stripUpdate(v.Document(), fields))
				continue
			}
		}
		b = append(b, element...)
	}
}

// stripUpdate keeps the parts of an update description that concern the fields.
func stripUpdate(doc []byte, fields []string) []byte {
	var b []byte
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return change.WrapDocument(b)
		}
		at = next
		switch {
		case string(name) == "updatedFields" && v.Document() != nil:
			b = change.AppendDocument(b, "updatedFields", keep(v.Document(), fields, firstPart))
		case string(name) == "disambiguatedPaths" && v.Document() != nil:
			b = change.AppendDocument(b, "disambiguatedPaths", keep(v.Document(), fields, firstPart))
		default:
			b = change.AppendElement(b, v.Type, string(name), v.Data)
		}
	}
}

func topLevel(name string) string { return name }

// firstPart returns the top-level field of a dotted path.
func firstPart(path string) string {
	field, _, _ := strings.Cut(path, ".")
	return field
}

// keep copies _id and the elements for whose name field returns one of the fields.
func keep(doc []byte, fields []string, field func(string) string) []byte {
	var b []byte
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return change.WrapDocument(b)
		}
		at = next
		if string(name) == "_id" || slices.Contains(fields, field(string(name))) {
			b = change.AppendElement(b, v.Type, string(name), v.Data)
		}
	}
}
