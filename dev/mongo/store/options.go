package store

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Options are the options of a new collection.
type Options struct {
	Images bool
	// Size and Max bound a capped collection, in bytes and documents; a Size of 0 is no capped
	// collection. What would evict documents is refused.
	Size, Max int64
	// FoldCase says that the collation ignores case. Only letters and digits of ASCII are known.
	FoldCase bool
	// Kind is what listCollections calls a view or a time series; empty is a collection. Those are
	// listed, and can be dropped: devmongo reads and writes nothing of them.
	Kind string
	// Shown is the options as listCollections shows them, without Images.
	Shown bsoncore.Document
}

// A view is a view or a time series.
type view struct {
	Kind  string
	Shown bsoncore.Document
}

// isView returns the error for an operation that a view does not support, nil if the name is not a
// view's.
func (s *Store) isView(n Name) error {
	db := s.databases[n.DB]
	if db == nil {
		return nil
	}
	if _, is := db.views[n.Coll]; is {
		return wire.Errorf(wire.CommandNotSupported, "devmongo neither reads nor writes views and time series, as %s", n)
	}
	return nil
}

// createView remembers a view. Change streams do not report it.
func (s *Store) createView(n Name, o Options) {
	db := s.database(n.DB)
	if db.views == nil {
		db.views = make(map[string]view)
	}
	db.views[n.Coll] = view{o.Kind, o.Shown}
}

func (s *Store) database(name string) *database {
	db := s.databases[name]
	if db == nil {
		db = &database{collections: map[string]*collection{}}
		s.databases[name] = db
	}
	return db
}

// listViews lists the other namespaces of a database: views, time series, and the collections in
// which a server keeps these.
func (d *database) listViews() (out []Collection) {
	if len(d.views) == 0 {
		return nil
	}
	out = append(out, Collection{Name: "system.views"})
	for name, v := range d.views {
		out = append(out, Collection{Name: name, Kind: v.Kind, Shown: v.Shown})
		if v.Kind == "timeseries" {
			out = append(out, Collection{Name: "system.buckets." + name})
		}
	}
	return out
}

// room refuses a document for which a capped collection would have to evict others.
func (c *collection) room(d bsoncore.Document) error {
	o := c.options
	isFull := o.Max > 0 && int64(len(c.docs)) >= o.Max
	if o.Size > 0 && (isFull || c.bytes+int64(len(d)) > o.Size) {
		return wire.Errorf(wire.CommandNotSupported, "devmongo evicts no documents of capped collections")
	}
	return nil
}

// capped refuses what releases before 5.0 do not do with capped collections: to delete, and to
// change the size of a document.
func (s *Store) capped(c *collection, before, after bsoncore.Document) error {
	switch {
	case c.options.Size == 0 || s.log.Release().Since(oplog.R60):
	case after == nil:
		return wire.Errorf(wire.IllegalOperation, "cannot remove from a capped collection: %s", c.ns)
	case len(before) != len(after):
		return wire.Errorf(10003, "Cannot change the size of a document in a capped collection: %d != %d", len(before), len(after))
	}
	return nil
}

// key is the key of an _id in the index on _id, which has the collation of the collection.
func (t *table) key(id bsoncore.Value) (string, error) {
	if !t.foldCase {
		return doc.SortKey(id)
	}
	unknown := wire.Errorf(wire.CommandNotSupported, "devmongo knows collations of ASCII letters and digits only")
	switch id.Type {
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		return "", unknown
	case bsoncore.TypeString:
		text, _ := id.StringValueOK()
		for _, r := range text {
			isDigit := '0' <= r && r <= '9'
			isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
			if !isDigit && !isLetter {
				return "", unknown
			}
		}
		id.Data = bsoncore.AppendString(nil, strings.ToLower(text))
	default:
	}
	return doc.SortKey(id)
}
