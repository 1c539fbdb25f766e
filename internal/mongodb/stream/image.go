package stream

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Where full documents are required and one is missing, because its collection keeps no images or the image has been removed, every
// stream that meets the event fails. The stream then asks for the documents that are there, for the rest of its life: otherwise it
// would have to be opened anew for each such event. What lacks its document says so.

// Incomplete is the name of the field, true, that an event has which lacks the document that was required.
const Incomplete = "incomplete"

// images returns MongoDB's fullDocument for the next opening, empty to leave it out.
func (st *stream) images() options.FullDocument {
	mode := options.FullDocument(st.source.cfg.Watch.FullDocument)
	if mode == options.Required && st.lenient {
		return options.WhenAvailable
	}
	return mode
}

// relent asks for images as far as they are there from the next opening on.
func (st *stream) relent(cause error) {
	st.lenient = true
	st.source.metrics.incomplete.Inc()
	st.source.client.Logger().Warn("a full document is required and missing; from now on events come without theirs where it is missing, marked "+Incomplete,
		"error", cause)
}

// marked returns the event, with the mark if its full document is missing.
func marked(event bson.Raw) bson.Raw {
	if event.Lookup("fullDocument").Type != bson.TypeNull {
		return event
	}
	const size = 1 + len(Incomplete) + 1 + 1
	all := make([]byte, 0, len(event)+size)
	all = append(all, event[:len(event)-1]...)
	all = append(all, byte(bson.TypeBoolean))
	all = append(all, Incomplete...)
	all = append(all, 0, 1, 0)
	binary.LittleEndian.PutUint32(all, uint32(len(all)))
	return all
}
