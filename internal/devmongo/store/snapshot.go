package store

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/keystring"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/table"
)

// Export is the whole store at one moment, with the log of that moment. Its documents are the stored ones.
type Export struct {
	Entries     []oplog.Entry
	ClusterTime uint64
	Databases   []string
	Collections []Exported
}

// Exported is one collection.
type Exported struct {
	NS      *oplog.Namespace
	Images  bool
	Indexes []Index
	Docs    []bsoncore.Document
}

// Export copies references to everything.
func (s *Store) Export() Export {
	s.mu.RLock()
	defer s.mu.RUnlock()
	x := Export{Entries: s.log.Entries(), ClusterTime: s.log.ClusterTime()}
	for name, db := range s.databases {
		x.Databases = append(x.Databases, name)
		for _, c := range db.inOrder() {
			out := Exported{NS: c.ns, Images: c.images, Indexes: c.indexes[:len(c.indexes):len(c.indexes)], Docs: c.Docs()}
			x.Collections = append(x.Collections, out)
		}
	}
	return x
}

// Import fills an empty store; it logs nothing.
func (s *Store) Import(x Export) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range x.Databases {
		s.databases[name] = &database{collections: map[string]*collection{}}
	}
	for _, in := range x.Collections {
		if in.NS == nil || in.NS.UUID == nil || s.databases[in.NS.DB] == nil {
			return errors.New("malformed collection in the snapshot")
		}
		c := &collection{ns: in.NS, images: in.Images, indexes: in.Indexes, Table: table.New(), locks: map[string]*Txn{}}
		s.created++
		c.order = s.created
		for _, d := range in.Docs {
			id, _ := doc.Field(d, "_id")
			key, err := keystring.Key(id)
			if err != nil {
				return err
			}
			c.Insert(key, d, x.ClusterTime)
		}
		s.databases[in.NS.DB].collections[in.NS.Coll] = c
		s.byUUID[*in.NS.UUID] = c
	}
	return nil
}
