package subscription

import "github.com/mongostream/streamer/gateway/streampb"

// A Subscription is a filter. Fields that are left out do not narrow it.
type Subscription struct {
	// ID names it among the subscriptions of the client. Required.
	ID       string
	DB, Coll string
	// Ops are insert, update, replace, delete, drop, …
	Ops []string
	// Filter is a CEL expression over doc, before, op, ns, key and update.
	Filter string
	// Format is how changes are written. Defaults to BSON.
	Format Format
	// Fields are the top-level fields of documents to send besides _id.
	Fields []string
	// Deletes says which deletes a filter gets that reads the document, which has gone by then. Defaults to all.
	Deletes Deletes
}

// Format is how a change is written.
type Format int32

// The formats.
const (
	BSON = Format(streampb.Format_FORMAT_UNSPECIFIED) // the change event as MongoDB sent it
	JSON = Format(streampb.Format_FORMAT_JSON)        // the same as relaxed Extended JSON
)

// Deletes says which deletes a filter gets that reads the document.
type Deletes int32

// The choices.
const (
	DeletesAll    = Deletes(streampb.Deletes_DELETES_UNSPECIFIED) // all of its namespaces, with their keys only
	DeletesNone   = Deletes(streampb.Deletes_DELETES_NONE)
	DeletesBefore = Deletes(streampb.Deletes_DELETES_BEFORE) // those whose document before the deletion matches; MongoDB must keep pre-images
)

// Message writes the subscription for the wire.
func (s *Subscription) Message() *streampb.Subscription {
	return &streampb.Subscription{
		Id: s.ID, Db: s.DB, Coll: s.Coll, Ops: s.Ops, Filter: s.Filter, Fields: s.Fields,
		Format: streampb.Format(s.Format), Deletes: streampb.Deletes(s.Deletes),
	}
}
