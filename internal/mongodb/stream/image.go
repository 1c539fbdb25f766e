package stream

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An image is the full document after a change, or the document before it. If images are required
// and one is missing, because its collection keeps none or MongoDB has removed it, every stream
// that reads the event fails. From then on the stream asks for images only where available, because
// otherwise it would have to be reopened for each such event. An event that lacks an image is
// marked.

// Incomplete is the name of a field that is true in an event that lacks a required image, or that
// MongoDB could deliver only in part because it is too large.
const Incomplete = "incomplete"

// images requests the configured images; lenient requests them only where available.
func (w Watch) images(opts *options.ChangeStreamOptionsBuilder, lenient bool) {
	ask := func(mode string, set func(options.FullDocument) *options.ChangeStreamOptionsBuilder) {
		switch {
		case mode == "":
		case mode == string(options.Required) && lenient:
			set(options.WhenAvailable)
		default:
			set(options.FullDocument(mode))
		}
	}
	ask(w.FullDocument, opts.SetFullDocument)
	ask(w.BeforeChange, opts.SetFullDocumentBeforeChange)
}

// relent makes the stream request images only where available, from its next opening.
func (st *stream) relent(cause error) {
	st.lenient = true
	st.source.metrics.incomplete.Inc()
	st.source.client.Logger().Warn("an image is required and missing; from now on events come without theirs where it is missing, marked "+Incomplete,
		"error", cause)
}

// lacks reports whether an image that is required is missing in the event.
func (w Watch) lacks(event bson.Raw) bool {
	missing := func(mode, field string) bool {
		return mode == string(options.Required) && event.Lookup(field).Type == bson.TypeNull
	}
	return missing(w.FullDocument, "fullDocument") || missing(w.BeforeChange, "fullDocumentBeforeChange")
}

// marked returns the event with the field Incomplete.
func marked(event bson.Raw) bson.Raw {
	const size = 1 + len(Incomplete) + 1 + 1
	all := make([]byte, 0, len(event)+size)
	all = append(all, event[:len(event)-1]...)
	all = append(all, byte(bson.TypeBoolean))
	all = append(all, Incomplete...)
	all = append(all, 0, 1, 0)
	binary.LittleEndian.PutUint32(all, uint32(len(all)))
	return all
}
