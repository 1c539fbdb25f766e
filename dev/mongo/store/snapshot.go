package store

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// snapshotFormat is the version of the file format.
const snapshotFormat = 2

// snapshotHead is the first value of a snapshot. The entries of the log and the collections follow,
// each collection with its documents.
type snapshotHead struct {
	Format               int
	Release              oplog.Release
	Set                  [12]byte // the replica set's id
	ClusterTime          uint64
	Databases            []string
	Views                map[string]map[string]view // by database and name
	Entries, Collections int
}

type snapshotCollection struct {
	NS        *oplog.Namespace
	Images    bool
	Options   Options
	Indexes   []Index
	Documents int
	docs      []bsoncore.Document
}

// Save writes the data, the log and the id of the replica set to a file, which it replaces as a
// whole. It returns the cluster time of the snapshot.
func (s *Store) Save(path string, set [12]byte) (uint64, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return 0, err
	}
	ts, err := s.write(f, set)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return ts, err
}

func (s *Store) write(f io.Writer, set [12]byte) (uint64, error) {
	s.mu.RLock()
	entries := s.log.Entries()
	head := snapshotHead{Format: snapshotFormat, Release: s.log.Release(), Set: set, ClusterTime: s.log.ClusterTime(), Entries: len(entries)}
	head.Views = make(map[string]map[string]view)
	var collections []snapshotCollection
	for name, db := range s.databases {
		head.Databases = append(head.Databases, name)
		if len(db.views) > 0 {
			head.Views[name] = maps.Clone(db.views)
		}
		for _, c := range db.inOrder() {
			collections = append(collections, snapshotCollection{
				NS: c.ns, Images: c.images, Options: c.options, Indexes: slices.Clip(c.indexes), Documents: len(c.docs), docs: c.all(),
			})
		}
	}
	s.mu.RUnlock()
	head.Collections = len(collections)
	w := bufio.NewWriterSize(f, 1<<20)
	x := gob.NewEncoder(w)
	err := x.Encode(head)
	for i := range entries {
		err = errors.Join(err, x.Encode(&entries[i]))
	}
	for i := range collections {
		err = errors.Join(err, x.Encode(&collections[i]))
		for _, d := range collections[i].docs {
			err = errors.Join(err, x.Encode(d))
		}
	}
	return head.ClusterTime, errors.Join(err, w.Flush())
}

// Load makes a store and its log from a file that Save wrote for the same release. It returns the
// id of the replica set, too.
func Load(path string, c oplog.Config) (s *Store, set [12]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, set, err
	}
	defer func() { _ = f.Close() }()
	x := gob.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	var head snapshotHead
	if err := x.Decode(&head); err != nil || head.Format != snapshotFormat {
		return nil, set, errors.New("not a snapshot of this version of devmongo")
	}
	if head.Release != c.Release {
		return nil, set, fmt.Errorf("it is of release %s, the server is %s", head.Release, c.Release)
	}
	if s, err = readSnapshot(x, head, c); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file is not whole")
	}
	return s, head.Set, err
}

func readSnapshot(x *gob.Decoder, head snapshotHead, c oplog.Config) (*Store, error) {
	var entries []oplog.Entry
	for range head.Entries {
		var e oplog.Entry
		if err := x.Decode(&e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	log, err := oplog.Restore(c, entries, head.ClusterTime)
	if err != nil {
		return nil, err
	}
	s := New(log)
	for _, name := range head.Databases {
		s.databases[name] = &database{collections: map[string]*collection{}, views: head.Views[name]}
	}
	for range head.Collections {
		if err := s.readCollection(x, head.ClusterTime); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) readCollection(x *gob.Decoder, ts uint64) error {
	var in snapshotCollection
	if err := x.Decode(&in); err != nil {
		return err
	}
	if in.NS == nil || in.NS.UUID == nil || s.databases[in.NS.DB] == nil {
		return errors.New("malformed collection in the snapshot")
	}
	s.created++
	c := &collection{
		ns: in.NS, images: in.Images, options: in.Options, indexes: in.Indexes, table: newTable(in.Options.FoldCase), locks: map[string]*Txn{},
		order: s.created,
	}
	for range in.Documents {
		var d bsoncore.Document
		if err := x.Decode(&d); err != nil {
			return err
		}
		if err := wire.Validate(d); err != nil {
			return err
		}
		id, _ := doc.Field(d, "_id")
		key, err := c.key(id)
		if err != nil {
			return err
		}
		c.insert(key, d, ts)
	}
	s.databases[in.NS.DB].collections[in.NS.Coll] = c
	s.byUUID[*in.NS.UUID] = c
	return nil
}
