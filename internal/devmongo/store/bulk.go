package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/table"
)

// Bulk is a collection in the hands of somebody who writes many documents at once and logs them himself.
type Bulk struct {
	Log *oplog.Log
	s   *Store
	c   *collection
}

// Bulk calls f with a collection, which it creates when it does not exist, under the store's lock.
func (s *Store) Bulk(n Name, f func(Bulk) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.target(n, Writer{})
	if err != nil {
		return err
	}
	return f(Bulk{Log: s.log, s: s, c: c})
}

// NS is the collection's namespace.
func (b Bulk) NS() *oplog.Namespace { return b.c.ns }

// Taken reports whether there is a document with the key.
func (b Bulk) Taken(key string) bool { return b.c.Get(key) != nil }

// Insert adds a document whose key is free.
func (b Bulk) Insert(key string, d bsoncore.Document, ts uint64) *table.Record {
	b.s.remember(b.c, key, ts)
	return b.c.Insert(key, d, ts)
}

// Replace changes a document.
func (b Bulk) Replace(r *table.Record, d bsoncore.Document, ts uint64) {
	b.s.remember(b.c, r.Key, ts)
	b.c.Replace(r, d, ts)
}
