package store

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// MaxDocument is the largest document a user may store, in bytes.
const MaxDocument = 16 << 20

// Store is all data of a server. It is safe for concurrent use.
type Store struct {
	log *oplog.Log

	mu        sync.RWMutex
	databases map[string]*database
	byUUID    map[[16]byte]*collection
	created   int // counts collections, for their order
	past      []past
	pastBytes int             // of documents in past
	forgotten uint64          // cluster time of the newest change that past has no longer
	defined   map[Name]uint64 // cluster time at which a collection was created, dropped or renamed last
	examined  atomic.Int64
}

// database keeps existing when its last collection is dropped.
type database struct {
	collections map[string]*collection
	views       map[string]view
}

// New makes an empty store that logs to log.
func New(log *oplog.Log) *Store {
	return &Store{log: log, databases: map[string]*database{}, byUUID: map[[16]byte]*collection{}, defined: map[Name]uint64{}}
}

// Log is the log that the store writes to.
func (s *Store) Log() *oplog.Log { return s.log }

// Name is a namespace as a command names it.
type Name struct{ DB, Coll string }

func (n Name) String() string { return n.DB + "." + n.Coll }

// ParseName splits "db.coll".
func ParseName(s string) (Name, error) {
	db, coll, _ := strings.Cut(s, ".")
	n := Name{DB: db, Coll: coll}
	return n, n.check()
}

func (n Name) check() error {
	switch {
	case n.DB == "" || strings.ContainsAny(n.DB, `/\. "$`) || len(n.DB) > 63:
		return wire.Errorf(wire.InvalidNamespace, "Invalid database name: '%s'", n.DB)
	case n.Coll == "" || strings.HasPrefix(n.Coll, ".") || strings.ContainsAny(n.Coll, "$\x00"):
		return wire.Errorf(wire.InvalidNamespace, "Invalid namespace specified '%s'", n)
	default:
		return nil
	}
}

// Writer identifies the session and transaction of a write; the zero Writer has neither.
type Writer struct {
	Session *oplog.Session // of a retryable write: it goes to the log
	Stmt    int32
	Txn     *Txn
}

func (s *Store) find(n Name) *collection {
	if db := s.databases[n.DB]; db != nil {
		return db.collections[n.Coll]
	}
	return nil
}

// seen is the collection as a transaction sees it: one that it is about to create, too.
func (s *Store) seen(n Name, t *Txn) *collection {
	if c := s.find(n); c != nil || t == nil {
		return c
	}
	return t.pending[n]
}

// target returns the collection to write to, and creates it when it does not exist.
func (s *Store) target(n Name, w Writer) (*collection, error) {
	if c := s.seen(n, w.Txn); c != nil {
		return c, nil
	}
	if err := s.creatable(n); err != nil {
		return nil, err
	}
	c := newCollection(n, Options{})
	if w.Txn != nil {
		w.Txn.pending[n] = c
		return c, nil
	}
	s.register(c)
	return c, nil
}

// creatable returns why a collection of a name cannot be created, nil if it can.
func (s *Store) creatable(n Name) error {
	if err := n.check(); err != nil {
		return err
	}
	if err := s.isView(n); err != nil {
		return err
	}
	if n.DB == "local" || strings.HasPrefix(n.Coll, "system.") {
		return wire.Errorf(wire.InvalidNamespace, "devmongo does not write to '%s'", n)
	}
	return nil
}

// register makes a collection exist and logs it.
func (s *Store) register(c *collection) {
	db := s.database(c.ns.DB)
	s.created++
	c.order = s.created
	db.collections[c.ns.Coll] = c
	s.byUUID[*c.ns.UUID] = c
	options := doc.New().Raw(inside(c.options.Shown)).Open("idIndex").Int32("v", 2).Open("key").Int32("_id", 1).End().String("name", "_id_").Document()
	s.defined[Name{c.ns.DB, c.ns.Coll}] = s.log.Append(oplog.Op{
		Kind: oplog.Create, NS: c.ns, Description: options,
		Object: doc.New().String("create", c.ns.Coll).Raw(options[4 : len(options)-1]).Document(),
	})
}

// inside returns the elements of a document without its length and terminator.
func inside(d bsoncore.Document) []byte {
	if d == nil {
		return nil
	}
	return d[4 : len(d)-1]
}

// Lookup returns the current document of a collection by its UUID, nil when either is gone.
func (s *Store) Lookup(uuid *[16]byte, id bsoncore.Value) bsoncore.Document {
	if uuid == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.byUUID[*uuid]
	if c == nil {
		return nil
	}
	key, err := c.key(id)
	if err != nil {
		return nil
	}
	d, _ := c.see(key, overlay{})
	return d
}

// Database says of a database what listDatabases does.
type Database struct {
	Name  string
	Bytes int64
}

// Databases lists those with collections, sorted.
func (s *Store) Databases() []Database {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Database
	for name, db := range s.databases {
		if len(db.collections) == 0 {
			continue
		}
		d := Database{Name: name}
		for _, c := range db.collections {
			d.Bytes += c.bytes
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Database) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Collection says of a collection what listCollections and collStats do.
type Collection struct {
	Name    string
	UUID    [16]byte
	Count   int64
	Bytes   int64
	Images  bool
	Indexes []Index
	// Kind and Shown are as in Options.
	Kind  string
	Shown bsoncore.Document
}

// Collections lists a database's collections in the order of their creation, and then its views.
func (s *Store) Collections(db string) []Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d := s.databases[db]
	if d == nil {
		return nil
	}
	var out []Collection
	for _, c := range d.inOrder() {
		out = append(out, c.describe())
	}
	return append(out, d.listViews()...)
}

// Collection describes one collection.
func (s *Store) Collection(n Name) (Collection, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.find(n)
	if c == nil {
		return Collection{}, false
	}
	return c.describe(), true
}

func (d *database) inOrder() []*collection {
	var out []*collection
	for _, c := range d.collections {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *collection) int { return a.order - b.order })
	return out
}

func (s *Store) scope() query.Scope {
	return query.Scope{NowMS: s.log.Now().UnixMilli(), ClusterTime: s.log.ClusterTime()}
}

// collection is guarded by the store's lock.
type collection struct {
	*table
	ns      *oplog.Namespace
	order   int
	indexes []Index
	images  bool            // keeps pre- and post-images in the log
	options Options         // as it was created
	locks   map[string]*Txn // by key
}

func newCollection(n Name, o Options) *collection {
	return &collection{
		table:   newTable(o.FoldCase),
		images:  o.Images,
		options: o,
		ns:      &oplog.Namespace{DB: n.DB, Coll: n.Coll, UUID: NewUUID()},
		indexes: []Index{idIndex()},
		locks:   map[string]*Txn{},
	}
}

func (c *collection) describe() Collection {
	return Collection{
		Name: c.ns.Coll, UUID: *c.ns.UUID, Count: int64(len(c.docs)), Bytes: c.bytes, Images: c.images,
		Indexes: slices.Clone(c.indexes), Shown: c.options.Shown,
	}
}
