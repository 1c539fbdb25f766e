package change

import (
	"errors"
	"fmt"

	"github.com/mongostream/streamer/change/build"
)

// Snapshotted makes the event of a document of a snapshot: its operation is OpSnapshot, its cluster time that at which the document was read.
// It has the token of a point of progress, because it stands at no place of its own in the log.
func Snapshotted(ns Namespace, doc []byte, at Timestamp) (Event, error) {
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errors.New("a document without an _id")
	}
	token := build.Document(build.AppendString(nil, "_data", fmt.Sprintf("82%08X%08X2B0229296E04", at.T, at.I)))
	b := build.Begin(make([]byte, 0, len(doc)+256))
	b = build.AppendDocument(b, "_id", token)
	b = build.AppendString(b, "operationType", SnapshotName)
	b = build.AppendTimestamp(b, "clusterTime", at.T, at.I)
	b = build.AppendDocument(b, "fullDocument", doc)
	b = build.AppendDocument(b, "ns", build.Document(build.AppendString(build.AppendString(nil, "db", ns.DB), "coll", ns.Coll)))
	b = build.AppendDocument(b, "documentKey", build.Document(build.AppendValue(nil, id.Type, "_id", id.Data)))
	return Parse(build.End(b, 0))
}

// IDOf returns the _id of a document, or the zero Value.
func IDOf(doc []byte) Value { return lookup(doc, "_id") }
