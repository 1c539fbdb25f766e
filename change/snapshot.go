package change

import "errors"

// Snapshotted returns the event of a document read by a snapshot: its operation is OpSnapshot, its cluster time the time of the read. It
// has the token of a point of progress, because it has no position of its own in the log.
func Snapshotted(ns Namespace, doc []byte, at Timestamp) (Event, error) {
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errors.New("document without _id")
	}
	b := BeginDocument(make([]byte, 0, len(doc)+256))
	b = AppendDocument(b, "_id", progressToken(at))
	b = AppendString(b, "operationType", SnapshotName)
	b = AppendTimestamp(b, "clusterTime", at.T, at.I)
	b = AppendDocument(b, "fullDocument", doc)
	b = AppendDocument(b, "ns", WrapDocument(AppendString(AppendString(nil, "db", ns.DB), "coll", ns.Coll)))
	b = AppendDocument(b, "documentKey", WrapDocument(AppendElement(nil, id.Type, "_id", id.Data)))
	return Parse(EndDocument(b, 0))
}

// IDOf returns the _id of a document, or the zero Value.
func IDOf(doc []byte) Value { return lookup(doc, "_id") }
