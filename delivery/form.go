package delivery

import (
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
)

// A Format is the encoding of payloads.
type Format uint8

// The formats.
const (
	BSON Format = iota // the change event as MongoDB sent it, without its token
	JSON               // the same in relaxed Extended JSON, with the document's key (extjson.AppendKey)
)

// A Form is the encoding and projection that a subscription requests.
type Form struct {
	Format Format
	// Fields are the top-level document fields to keep in addition to _id, in order; empty keeps
	// all.
	Fields []string

	key string // of equal forms, of a subscription's form
}

// keyed returns the form with its key, for fast comparison of many forms.
func (f Form) keyed() Form {
	f.key = string(rune(f.Format)) + strings.Join(f.Fields, "\x00")
	return f
}

// Equal reports whether two forms are equal.
func (f Form) Equal(g Form) bool { return f.Format == g.Format && slices.Equal(f.Fields, g.Fields) }

// A Writer encodes an event in the requested forms, each once. It must not be used concurrently.
type Writer struct {
	event   *change.Event
	written []written // forms of the current event; the buffers are reused
	used    int
	byKey   map[string]int // places in written, if there are many
	bytes   int            // of the buffers
	bson    []byte
	key     []byte    // of the event's document, empty until a form has it
	cost    int       // of its encodings, in units of match.MaxCost; without copies
	copied  int       // the cost of copying and delivering them
	came    time.Time // when MongoDB's reply with the event came, on the live path
}

// encodedBytes is how many bytes cost a unit when they are encoded.
const encodedBytes = 2

type written struct {
	form    Form
	payload []byte
}

// Bounds of a Writer's memory: buffers between events, and forms that it compares one by one.
const (
	maxBuffers = 8 << 20 // bytes
	fewForms   = 8
)

// Next sets the event.
func (w *Writer) Next(e *change.Event) {
	w.event = e
	w.used = 0
	w.key = w.key[:0]
	if w.bytes > maxBuffers {
		w.written, w.bytes = nil, 0
	}
	if len(w.byKey) > 0 {
		clear(w.byKey)
	}
}

// find returns the payload of a form that has been encoded, nil if it has not.
func (w *Writer) find(f Form) []byte {
	if w.used > fewForms && f.key != "" {
		if i, ok := w.byKey[f.key]; ok {
			return w.written[i].payload
		}
		return nil
	}
	for i := range w.written[:w.used] {
		if w.written[i].form.Equal(f) {
			return w.written[i].payload
		}
	}
	return nil
}

// keep remembers the form of the last payload.
func (w *Writer) keep() {
	w.used++
	if w.used <= fewForms {
		return
	}
	if w.byKey == nil {
		w.byKey = make(map[string]int)
	}
	from := w.used - 1
	if w.used == fewForms+1 {
		from = 0
	}
	for i := from; i < w.used; i++ {
		w.byKey[w.written[i].form.key] = i
	}
}

// fewFields is how many bytes an event is expected to have that is sent with some of its fields.
const fewFields = 256

// expected returns about how many bytes Append appends.
func (w *Writer) expected(f Form) int {
	n := len(w.event.Raw())
	if len(f.Fields) > 0 {
		n = min(n, fewFields)
	}
	return n
}

// Append appends the event in the form.
func (w *Writer) Append(b []byte, f Form) ([]byte, error) {
	if f.Format == BSON && len(f.Fields) == 0 {
		return appendStripped(b, w.event.Raw(), nil), nil
	}
	if payload := w.find(f); payload != nil {
		return append(b, payload...), nil
	}
	if w.used == len(w.written) {
		w.written = append(w.written, written{})
	}
	next := &w.written[w.used]
	before := cap(next.payload)
	next.form = f
	next.payload = next.payload[:0]
	if f.Format == BSON {
		next.payload = appendStripped(next.payload, w.event.Raw(), f.Fields)
	} else {
		if id := w.event.ID(); len(w.key) == 0 && !id.IsZero() {
			w.key = extjson.AppendKeyText(w.key, id)
		}
		var err error
		if len(f.Fields) == 0 && extjson.BeginsWithToken(w.event) {
			next.payload, err = extjson.Options{}.AppendKeyedEvent(next.payload, w.key, w.event)
		} else {
			w.bson = appendStripped(w.bson[:0], w.event.Raw(), f.Fields)
			next.payload, err = extjson.Options{}.AppendKeyed(next.payload, w.key, w.bson)
		}
		if err != nil {
			return b, err
		}
	}
	w.bytes += cap(next.payload) - before
	w.keep()
	w.cost += 1 + len(next.payload)/encodedBytes
	return append(b, next.payload...), nil
}

// appendStripped appends an event without its token and, with fields, only these fields of its
// documents. The event has been parsed before, so its elements are valid.
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
				b = change.AppendDocument(b, string(name), keep(v.Document(), func(name string) bool { return slices.Contains(fields, name) }))
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
	within := func(path string) bool { return leadsInto(path, fields) }
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return change.WrapDocument(b)
		}
		at = next
		switch {
		case string(name) == "updatedFields" && v.Document() != nil:
			b = change.AppendDocument(b, "updatedFields", keep(v.Document(), within))
		case string(name) == "disambiguatedPaths" && v.Document() != nil:
			b = change.AppendDocument(b, "disambiguatedPaths", keep(v.Document(), within))
		default:
			b = change.AppendElement(b, v.Type, string(name), v.Data)
		}
	}
}

// leadsInto reports whether a path may be of one of the fields or in it. The name of a field may
// have dots.
func leadsInto(path string, fields []string) bool {
	return slices.ContainsFunc(fields, func(field string) bool {
		return strings.HasPrefix(path, field) && (len(path) == len(field) || path[len(field)] == '.')
	})
}

// keep copies _id and the elements whose names are wanted.
func keep(doc []byte, wanted func(name string) bool) []byte {
	var b []byte
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil || name == nil {
			return change.WrapDocument(b)
		}
		at = next
		if string(name) == "_id" || wanted(string(name)) {
			b = change.AppendElement(b, v.Type, string(name), v.Data)
		}
	}
}
