package snapshot

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
)

// A Source reads collections. It is safe for concurrent use.
type Source interface {
	// Collections returns the existing collections of a database (empty: of all), or the one with a
	// name. It omits views and system collections, because they have no changes. at is a cluster
	// time: nothing that happened later has been considered.
	Collections(ctx context.Context, db, coll string) (all []Collection, at change.Timestamp, err error)
	// Read reads a page. A missing collection has no documents.
	Read(ctx context.Context, q Query) (Page, error)
}

// A Collection is a collection with MongoDB's estimate of its number of documents.
type Collection struct {
	change.Namespace

	Documents int64
}

// A Query selects a page.
type Query struct {
	Namespace change.Namespace
	// After is a cluster time: the page shows everything that happened up to there.
	After change.Timestamp
	// From and Until bound the documents by _id, From inclusive and Until exclusive, in the order
	// of the index on _id; zero is no bound.
	From, Until change.Value
	// FromHash, unless it is nil, is the hash of the _id at which the page begins, and From is a
	// value before it. Read fails with ErrPlaceGone where no document has it, and with a
	// FurtherError where none of the first LocatedKeys has it.
	FromHash []byte
	// IDs, if set, select documents instead of From and Until.
	IDs []change.Value
	// Documents and Bytes bound the page, except for a single larger document.
	Documents, Bytes int
}

// A Page is a stretch of a collection.
type Page struct {
	// Documents are complete, as BSON, in the order of _id.
	Documents [][]byte
	// Next is the _id at which the next page begins, zero if nothing is left.
	Next change.Value
	// To is a cluster time: the page shows nothing that happened later.
	To change.Timestamp
}

// LocatedKeys is among how many keys a Read looks for a hash.
const LocatedKeys = 512

// A FurtherError says that a hash may be further on: the next Read looks from there.
type FurtherError struct{ From change.Value }

// Error implements error.
func (e *FurtherError) Error() string {
	return "the document with this hash is not among the first ones"
}

// ErrPlaceGone reports that the document at which a page should begin does not exist.
var ErrPlaceGone = errors.New("there is no document with this hash")
