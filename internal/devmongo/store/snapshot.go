package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// format is the version of the file's form.
const format = 1

// Snapshot is what a file keeps.
type Snapshot struct {
	Export
	Release string
	Set     [12]byte // the replica set's id
}

// WriteSnapshot writes the snapshot beside the old one and puts it in its place.
func WriteSnapshot(path string, x Snapshot) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f, x), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func write(f io.Writer, x Snapshot) error {
	w := bufio.NewWriterSize(f, 1<<20)
	put := func(b *doc.Builder) { _, _ = w.Write(b.Bytes()) } // Flush returns the error
	put(doc.New().Int32("devmongo", format).String("release", x.Release).Timestamp("clusterTime", x.ClusterTime).ObjectID("set", x.Set))
	for i := range x.Entries {
		b := doc.New().Open("entry")
		x.Entries[i].Encode(b)
		put(b)
	}
	for _, name := range x.databases {
		put(doc.New().String("database", name))
	}
	for _, c := range x.collections {
		b := doc.New().Open("collection").Open("ns").String("db", c.ns.DB).String("coll", c.ns.Coll).Binary("uuid", 4, c.ns.UUID[:]).End()
		b.Bool("images", c.images).OpenArray("indexes")
		for i, index := range c.indexes {
			b.Open(doc.Index(i)).String("name", index.Name).Doc("key", index.Key).End()
		}
		put(b)
		for _, d := range c.docs {
			put(doc.New().Binary("document", 0, d))
		}
	}
	put(doc.New().Bool("end", true))
	return w.Flush()
}

// ReadSnapshot reads a snapshot that a server of the release wrote. A file that is not whole is an error, and so is one of
// another release; a missing one is fs.ErrNotExist.
func ReadSnapshot(path, release string) (Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 1<<20)
	x, err := readHead(r, release)
	if err != nil {
		return Snapshot{}, err
	}
	p := &parser{export: &x.Export}
	for !p.ended {
		d, err := readDocument(r)
		if err == nil {
			err = p.take(d)
		}
		if err != nil {
			return Snapshot{}, err
		}
	}
	return x, nil
}

func readHead(r io.Reader, release string) (Snapshot, error) {
	head, err := readDocument(r)
	if err != nil {
		return Snapshot{}, err
	}
	version, _ := doc.Field(head, "devmongo")
	of, _ := doc.Field(head, "release")
	clock, _ := doc.Field(head, "clusterTime")
	set, _ := doc.Field(head, "set")
	x := Snapshot{Export: Export{ClusterTime: query.Timestamp(clock)}}
	var ok bool
	x.Set, ok = set.ObjectIDOK()
	if n, _ := version.Int32OK(); n != format || !ok {
		return x, errors.New("not a snapshot of this version of devmongo")
	}
	if x.Release, _ = of.StringValueOK(); x.Release != release {
		return x, fmt.Errorf("it is of release %s, the server is %s", x.Release, release)
	}
	return x, nil
}

// readDocument reads one document. A file that ends before its end document is not whole.
func readDocument(r io.Reader) (bsoncore.Document, error) {
	const most = 64 << 20
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, errors.New("the file is not whole")
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n < 5 || n > most {
		return nil, errors.New("malformed document")
	}
	d := make([]byte, n)
	copy(d, size[:])
	if _, err := io.ReadFull(r, d[4:]); err != nil {
		return nil, errors.New("the file is not whole")
	}
	return d, wire.Validate(d)
}

type parser struct {
	export  *Export
	decoder oplog.Decoder
	ended   bool
}

func (p *parser) take(d bsoncore.Document) error {
	name, v, _ := doc.First(d)
	switch name {
	case "entry":
		e, err := p.decoder.Decode(v.Data)
		p.export.Entries = append(p.export.Entries, e)
		return err
	case "database":
		text, _ := v.StringValueOK()
		p.export.databases = append(p.export.databases, text)
	case "collection":
		p.collection(v.Data)
	case "document":
		_, data, ok := v.BinaryOK()
		n := len(p.export.collections)
		if !ok || n == 0 {
			return errors.New("a document without a collection")
		}
		if err := wire.Validate(data); err != nil {
			return err
		}
		p.export.collections[n-1].docs = append(p.export.collections[n-1].docs, data)
	case "end":
		p.ended = true
	default:
		return fmt.Errorf("unknown part %q", name)
	}
	return nil
}

func (p *parser) collection(d bsoncore.Document) {
	images, _ := doc.Field(d, "images")
	c := exported{ns: p.decoder.Namespace(d, "ns"), images: doc.Truth(images)}
	list, _ := doc.Field(d, "indexes")
	for v := range doc.Values(list.Data) {
		name, _ := doc.Field(v.Data, "name")
		key, _ := doc.Field(v.Data, "key")
		index := Index{Key: doc.Clone(key.Data)}
		index.Name, _ = name.StringValueOK()
		c.indexes = append(c.indexes, index)
	}
	p.export.collections = append(p.export.collections, c)
}

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
