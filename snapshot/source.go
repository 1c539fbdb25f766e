package snapshot

import (
	"context"

	"github.com/mongostream/streamer/change"
)

// A Source reads collections. It may be used from several goroutines.
type Source interface {
	// Collections returns the collections of a database (empty: of all), or the one of a name, that there are now and that changes come of: no
	// views, and nothing of MongoDB's own.
	Collections(ctx context.Context, db, coll string) ([]Collection, error)
	// Read reads a page. A collection that is not there has no documents.
	Read(ctx context.Context, q Query) (Page, error)
}

// A Collection is one to be read, with the number of its documents as MongoDB estimates it.
type Collection struct {
	change.Namespace

	Documents int64
}

// A Query says what a page is to have.
type Query struct {
	Namespace change.Namespace
	// After is a cluster time: the page shows everything that happened up to there.
	After change.Timestamp
	// From and Until bound the documents by _id, From inclusive and Until exclusive, in the order of the index on _id; zero is no bound.
	From, Until change.Value
	// IDs, where there are some, are those of the documents, in place of From and Until.
	IDs []change.Value
	// Documents and Bytes are how much the page has at most, but for a single document that is larger.
	Documents, Bytes int
}

// A Page is a stretch of a collection.
type Page struct {
	// Documents are whole, as BSON, in the order of _id.
	Documents [][]byte
	// Next is the _id of the document where the next page begins, zero where nothing is left.
	Next change.Value
	// To is a cluster time: the page shows nothing that happened later.
	To change.Timestamp
}
