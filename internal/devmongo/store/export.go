package store

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// Export is the whole store at one moment, with the log of that moment. Its documents are the stored ones.
type Export struct {
	Entries     []oplog.Entry
	ClusterTime uint64
	databases   []string
	collections []exported
}

// exported is one collection.
type exported struct {
	ns      *oplog.Namespace
	images  bool
	indexes []Index
	docs    []bsoncore.Document
}

// Export copies references to everything.
func (s *Store) Export() Export {
	s.mu.RLock()
	defer s.mu.RUnlock()
	x := Export{Entries: s.log.Entries(), ClusterTime: s.log.ClusterTime()}
	for name, db := range s.databases {
		x.databases = append(x.databases, name)
		for _, c := range db.inOrder() {
			out := exported{ns: c.ns, images: c.images, indexes: c.indexes[:len(c.indexes):len(c.indexes)], docs: c.all()}
			x.collections = append(x.collections, out)
		}
	}
	return x
}

// Import fills an empty store; it logs nothing.
func (s *Store) Import(x Export) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range x.databases {
		s.databases[name] = &database{collections: map[string]*collection{}}
	}
	for _, in := range x.collections {
		if in.ns == nil || in.ns.UUID == nil || s.databases[in.ns.DB] == nil {
			return errors.New("malformed collection in the snapshot")
		}
		c := &collection{ns: in.ns, images: in.images, indexes: in.indexes, table: newTable(), locks: map[string]*Txn{}}
		s.created++
		c.order = s.created
		for _, d := range in.docs {
			id, _ := doc.Field(d, "_id")
			key, err := doc.SortKey(id)
			if err != nil {
				return err
			}
			c.insert(key, d, x.ClusterTime)
		}
		s.databases[in.ns.DB].collections[in.ns.Coll] = c
		s.byUUID[*in.ns.UUID] = c
	}
	return nil
}
