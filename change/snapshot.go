package change

import "errors"

// A Snapshotter makes the events of the documents that a snapshot reads from a collection. It must
// not be used concurrently.
type Snapshotter struct {
	before, after []byte // the elements around the document
	event         []byte
}

// NewSnapshotter returns a Snapshotter for documents of a collection that are read at a time.
func NewSnapshotter(ns Namespace, at Timestamp) *Snapshotter {
	before := AppendDocument(nil, "_id", progressToken(at))
	before = AppendString(before, "operationType", SnapshotName)
	return &Snapshotter{
		before: AppendTimestamp(before, "clusterTime", at.T, at.I),
		after:  AppendDocument(nil, "ns", WrapDocument(AppendString(AppendString(nil, "db", ns.DB), "coll", ns.Coll))),
	}
}

// Event returns the event of a document read by a snapshot: its operation is OpSnapshot, its
// cluster time the time of the read. It has the token of a point of progress, because it has no
// position of its own in the log. It is valid until the next call.
func (s *Snapshotter) Event(doc []byte) (Event, error) {
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errors.New("document without _id")
	}
	b := append(BeginDocument(s.event[:0]), s.before...)
	b = append(AppendDocument(b, "fullDocument", doc), s.after...)
	b = AppendDocument(b, "documentKey", nil)
	key := len(b)
	b = EndDocument(AppendElement(BeginDocument(b), id.Type, "_id", id.Data), key)
	s.event = EndDocument(b, 0)
	return Parse(s.event)
}

// Snapshotted returns the event of one document; see Snapshotter.
func Snapshotted(ns Namespace, doc []byte, at Timestamp) (Event, error) {
	return NewSnapshotter(ns, at).Event(doc)
}

// IDOf returns the _id of a document, or the zero Value.
func IDOf(doc []byte) Value { return lookup(doc, "_id") }
