package store

import (
	"slices"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// collection is guarded by the store's lock.
type collection struct {
	*table
	ns      *oplog.Namespace
	order   int
	indexes []Index
	images  bool            // keeps pre- and post-images in the log
	locks   map[string]*Txn // by key
}

func newCollection(n Name) *collection {
	return &collection{
		table:   newTable(),
		ns:      &oplog.Namespace{DB: n.DB, Coll: n.Coll, UUID: NewUUID()},
		indexes: []Index{idIndex()},
		locks:   map[string]*Txn{},
	}
}

func (c *collection) describe() Collection {
	return Collection{
		Name: c.ns.Coll, UUID: *c.ns.UUID, Count: int64(len(c.docs)), Bytes: c.bytes, Images: c.images,
		Indexes: slices.Clone(c.indexes),
	}
}
