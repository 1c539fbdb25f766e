package change

import "fmt"

// LeftName is the operationType of an event that is not from MongoDB: a document has stopped to
// match a filter.
const LeftName = "left"

// Left returns the event that says that a document has stopped to match a filter with another
// event, whose place it has.
func Left(e *Event) (Event, error) {
	return left(e.Token(), e.Namespace(), e.Key(), e.Time())
}

// LeftAt returns the event for a document that has stopped matching a filter, found at a time.
func LeftAt(ns Namespace, id Value, at Timestamp) (Event, error) {
	return left(progressToken(at), ns, WrapDocument(AppendElement(nil, id.Type, "_id", id.Data)), at)
}

func left(token []byte, ns Namespace, key []byte, at Timestamp) (Event, error) {
	b := BeginDocument(make([]byte, 0, len(key)+256))
	b = AppendDocument(b, "_id", token)
	b = AppendString(b, "operationType", LeftName)
	b = AppendTimestamp(b, "clusterTime", at.T, at.I)
	b = AppendDocument(b, "ns", WrapDocument(AppendString(AppendString(nil, "db", ns.DB), "coll", ns.Coll)))
	b = AppendDocument(b, "documentKey", key)
	return Parse(EndDocument(b, 0))
}

// progressToken returns the token of a point of progress.
func progressToken(at Timestamp) []byte {
	return WrapDocument(AppendString(nil, "_data", fmt.Sprintf("82%08X%08X2B0229296E04", at.T, at.I)))
}
