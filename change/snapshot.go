package change

import "errors"

// A Snapshotter makes the events of the documents that a snapshot reads from a collection. It must
// not be used concurrently.
type Snapshotter struct {
	before, after []byte // the elements around the document
	like          Event  // the event of an empty document
	event         []byte
	err           error
}

var errNoID = errors.New("document without _id")

// emptyDocument is a document without elements.
var emptyDocument = EndDocument(BeginDocument(nil), 0) //nolint:gochecknoglobals // a constant

// NewSnapshotter returns a Snapshotter for documents of a collection that are read at a time.
func NewSnapshotter(ns Namespace, at Timestamp) *Snapshotter {
	s := around(ns, at)
	s.write(emptyDocument, Value{})
	s.like, s.err = Parse(s.event)
	return s
}

// around returns a Snapshotter without the event of an empty document.
func around(ns Namespace, at Timestamp) *Snapshotter {
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
	if whole, err := documentAt(doc); err != nil || len(whole) != len(doc) {
		return Event{}, errMalformed
	}
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errNoID
	}
	key := s.write(doc, id)
	e := s.like // but for the places after the document, and the key
	e.raw = s.event
	further := uint32(len(doc) - len(emptyDocument))
	e.db += further
	e.coll += further
	e.key = key
	e.id = key + keyPrefix
	e.idType = id.Type
	return e, s.err
}

// keyPrefix is what precedes the value of _id in a document key: length, type and name.
const keyPrefix = 4 + 1 + uint32(len("_id\x00"))

// write writes the event of a document with an _id, and returns where its key begins.
func (s *Snapshotter) write(doc []byte, id Value) (key uint32) {
	b := append(BeginDocument(s.event[:0]), s.before...)
	b = append(AppendDocument(b, "fullDocument", doc), s.after...)
	b = AppendDocument(b, "documentKey", nil)
	from := len(b)
	b = BeginDocument(b)
	if !id.IsZero() {
		b = AppendElement(b, id.Type, "_id", id.Data)
	}
	b = EndDocument(b, from)
	s.event = EndDocument(b, 0)
	return uint32(from)
}

// Snapshotted returns the event of one document; see Snapshotter.
func Snapshotted(ns Namespace, doc []byte, at Timestamp) (Event, error) {
	id := lookup(doc, "_id")
	if id.IsZero() {
		return Event{}, errNoID
	}
	s := around(ns, at)
	s.write(doc, id)
	return Parse(s.event)
}

// IDOf returns the _id of a document, or the zero Value.
func IDOf(doc []byte) Value { return lookup(doc, "_id") }
