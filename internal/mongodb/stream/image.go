package stream

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Where images are required, full documents or those before changes, and one is missing, because
// its collection keeps none or it has been removed, every stream that meets the event fails. The
// stream then asks for the images that are there, for the rest of its life: otherwise it would have
// to be opened anew for each such event. What lacks an image says so.

// Incomplete is the name of the field, true, of an event that lacks an image that was required, or
// of which MongoDB could deliver only a part because it is too large.
const Incomplete = "incomplete"

// images asks for the images that are wanted, or for those of them that are there.
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

// relent asks for images as far as they are there from the next opening on.
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

// marked returns the event with the mark that it lacks something.
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
