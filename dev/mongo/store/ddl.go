package store

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Create makes a collection.
func (s *Store) Create(n Name, o Options) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(n) != nil {
		return wire.Errorf(wire.NamespaceExists, "Collection already exists. NS: %s", n)
	}
	if err := s.creatable(n); err != nil {
		return err
	}
	if o.Kind != "" {
		s.createView(n, o)
		return nil
	}
	s.register(newCollection(n, o))
	return nil
}

// Drop removes a collection and returns how many indexes it had.
func (s *Store) Drop(n Name) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isView(n) != nil {
		delete(s.databases[n.DB].views, n.Coll)
		return 0, nil
	}
	c := s.find(n)
	if c == nil {
		return 0, wire.Errorf(wire.NamespaceNotFound, "ns not found")
	}
	return len(c.indexes), s.drop(c)
}

func (s *Store) drop(c *collection) error {
	if err := c.unlocked(); err != nil {
		return err
	}
	delete(s.databases[c.ns.DB].collections, c.ns.Coll)
	delete(s.byUUID, *c.ns.UUID)
	s.defined[Name{c.ns.DB, c.ns.Coll}] = s.log.Append(oplog.Op{Kind: oplog.Drop, NS: c.ns, Object: doc.New().String("drop", c.ns.Coll).Document()})
	return nil
}

// unlocked reports Busy while a transaction has changed the collection.
func (c *collection) unlocked() error {
	for _, t := range c.locks {
		return &Busy{Txn: t}
	}
	return nil
}

// DropDatabase drops a database's collections, oldest first, and then the database. It reports
// whether there was one.
func (s *Store) DropDatabase(name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	db := s.databases[name]
	if db == nil {
		return false, nil
	}
	list := db.inOrder()
	for _, c := range list {
		if err := c.unlocked(); err != nil {
			return false, err
		}
	}
	for _, c := range list {
		if err := s.drop(c); err != nil {
			return false, err
		}
	}
	delete(s.databases, name)
	s.log.Append(oplog.Op{
		Kind: oplog.DropDatabase, NS: &oplog.Namespace{DB: name}, Object: doc.New().Int32("dropDatabase", 1).Document(),
	})
	return true, nil
}

// Rename gives a collection another name in its database, which may replace the collection that has
// it.
func (s *Store) Rename(from, to Name, dropTarget bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := to.check(); err != nil {
		return err
	}
	c, target := s.find(from), s.find(to)
	switch {
	case c == nil:
		return wire.Errorf(wire.NamespaceNotFound, "Source collection %s does not exist", from)
	case from == to:
		return wire.Errorf(wire.IllegalOperation, "Can't rename a collection to itself")
	case target != nil && !dropTarget:
		return wire.Errorf(wire.NamespaceExists, "target namespace exists")
	case from.DB != to.DB:
		return wire.Errorf(wire.CommandNotSupported, "devmongo does not rename collections across databases")
	}
	if err := c.unlocked(); err != nil {
		return err
	}
	object := doc.New().String("renameCollection", from.String()).String("to", to.String()).Bool("stayTemp", false)
	description := doc.New().Open("to").String("db", to.DB).String("coll", to.Coll).End()
	if target != nil {
		if err := target.unlocked(); err != nil {
			return err
		}
		delete(s.byUUID, *target.ns.UUID)
		object.Binary("dropTarget", 4, target.ns.UUID[:])
		description.Binary("dropTarget", 4, target.ns.UUID[:])
	}
	source := c.ns
	c.ns = &oplog.Namespace{DB: to.DB, Coll: to.Coll, UUID: source.UUID}
	delete(s.databases[from.DB].collections, from.Coll)
	s.databases[to.DB].collections[to.Coll] = c
	at := s.log.Append(oplog.Op{
		Kind: oplog.Rename, NS: source, To: c.ns, Object: object.Document(), Description: description.Document(),
	})
	s.defined[from], s.defined[to] = at, at
	return nil
}

// Index is an index; only the one on _id does anything.
type Index struct {
	Name string
	Key  bsoncore.Document
}

func idIndex() Index { return Index{Name: "_id_", Key: doc.New().Int32("_id", 1).Document()} }

func (i Index) document() bsoncore.Document {
	return doc.New().Int32("v", 2).Doc("key", i.Key).String("name", i.Name).Document()
}

// CreateIndexes adds indexes to a collection, which it creates when it does not exist. It returns
// how many there were and are, and whether the collection is new.
func (s *Store) CreateIndexes(n Name, list []Index) (before, after int, created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	created = s.find(n) == nil
	c, err := s.target(n, Writer{})
	if err != nil {
		return 0, 0, false, err
	}
	before = len(c.indexes)
	for _, i := range list {
		same := func(x Index) bool { return x.Name == i.Name }
		if at := slices.IndexFunc(c.indexes, same); at >= 0 {
			if string(c.indexes[at].Key) != string(i.Key) {
				return 0, 0, false, wire.Errorf(86, "Index must have unique name. The existing index: %s has the same name as the requested index: %s",
					doc.Text(c.indexes[at].document()), doc.Text(i.document()))
			}
			continue
		}
		c.indexes = append(c.indexes, i)
		spec := i.document()
		s.log.Append(oplog.Op{
			Kind: oplog.CreateIndexes, NS: c.ns,
			Object:      doc.New().String("createIndexes", n.Coll).Raw(spec[4 : len(spec)-1]).Document(),
			Description: doc.New().Docs("indexes", []bsoncore.Document{spec}).Document(),
		})
	}
	return before, len(c.indexes), created, nil
}

// DropIndexes removes an index by name, or with "*" all but the one on _id. It returns how many
// there were.
func (s *Store) DropIndexes(n Name, name string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(n)
	if c == nil {
		return 0, wire.Errorf(wire.NamespaceNotFound, "ns not found %s", n)
	}
	was := len(c.indexes)
	if name == "_id_" {
		return 0, wire.Errorf(wire.InvalidOptions, "cannot drop _id index")
	}
	kept := c.indexes[:0:0]
	for _, i := range c.indexes {
		if i.Name == "_id_" || name != "*" && i.Name != name {
			kept = append(kept, i)
			continue
		}
		spec := i.document()
		s.log.Append(oplog.Op{
			Kind: oplog.DropIndexes, NS: c.ns,
			Object:      doc.New().String("dropIndexes", n.Coll).String("index", i.Name).Document(),
			Description: doc.New().Docs("indexes", []bsoncore.Document{spec}).Document(),
		})
	}
	if len(kept) == was && name != "*" {
		return 0, wire.Errorf(wire.IndexNotFound, "index not found with name [%s]", name)
	}
	c.indexes = kept
	return was, nil
}

// SetImages makes a collection keep pre- and post-images in the log, or stop it.
func (s *Store) SetImages(n Name, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(n)
	if c == nil {
		return wire.Errorf(wire.NamespaceNotFound, "ns does not exist: %s", n)
	}
	before := imagesOption(c.images)
	c.images = on
	option := imagesOption(on)
	s.log.Append(oplog.Op{
		Kind: oplog.Modify, NS: c.ns,
		Object:      doc.New().String("collMod", n.Coll).Raw(option[4 : len(option)-1]).Document(),
		Description: option,
		StateBefore: doc.New().Open("collectionOptions").Binary("uuid", 4, c.ns.UUID[:]).Raw(before[4 : len(before)-1]).End().Document(),
	})
	return nil
}

func imagesOption(on bool) bsoncore.Document {
	return doc.New().Open("changeStreamPreAndPostImages").Bool("enabled", on).End().Document()
}
