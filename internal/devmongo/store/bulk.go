package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// bulk is a collection in the hands of somebody who writes many documents at once and logs them himself.
type bulk struct {
	log *oplog.Log
	s   *Store
	c   *collection
}

// bulk calls f with a collection, which it creates when it does not exist, under the store's lock.
func (s *Store) bulk(n Name, f func(bulk) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.target(n, Writer{})
	if err != nil {
		return err
	}
	return f(bulk{log: s.log, s: s, c: c})
}

// ns is the collection's namespace.
func (b bulk) ns() *oplog.Namespace { return b.c.ns }

// taken reports whether there is a document with the key.
func (b bulk) taken(key string) bool { return b.c.docs[key] != nil }

// insert adds a document whose key is free.
func (b bulk) insert(key string, d bsoncore.Document, ts uint64) *record {
	b.s.remember(b.c, key, ts)
	return b.c.insert(key, d, ts)
}

// replace changes a document.
func (b bulk) replace(r *record, d bsoncore.Document, ts uint64) {
	b.s.remember(b.c, r.key, ts)
	b.c.replace(r, d, ts)
}
