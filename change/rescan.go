package change

import (
	"errors"
	"fmt"

	"github.com/mongostream/streamer/change/build"
)

// Rescanned makes an event of a document that was read again after a loss: a replace with the flag rescan, of the operation time at which
// the document was read. It has the token of a point of progress, because it stands at no place of its own in the log.
func Rescanned(ns Namespace, doc []byte, at Timestamp) (Event, error) {
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errors.New("a document without an _id")
	}
	token := build.Document(build.AppendString(nil, "_data", fmt.Sprintf("82%08X%08X2B0229296E04", at.T, at.I)))
	var b []byte
	b = build.AppendDocument(b, "_id", token)
	b = build.AppendString(b, "operationType", OpReplace.String())
	b = build.AppendTimestamp(b, "clusterTime", at.T, at.I)
	b = build.AppendDocument(b, "fullDocument", doc)
	b = build.AppendDocument(b, "ns", build.Document(build.AppendString(build.AppendString(nil, "db", ns.DB), "coll", ns.Coll)))
	b = build.AppendDocument(b, "documentKey", build.Document(build.AppendValue(nil, id.Type, "_id", id.Data)))
	b = build.AppendTrue(b, "rescan")
	return Parse(build.Document(b))
}
