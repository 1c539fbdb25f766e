package admin

import (
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/cursor"
	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

func runCreate(ctx context.Context, r *node.Request, _ *doc.Builder) error {
	known := []string{"capped", "changeStreamPreAndPostImages", "validationLevel", "validationAction", "idIndex", "autoIndexId"}
	if err := r.Only(known...); err != nil {
		return err
	}
	if r.Truth("capped") {
		return fault.New(fault.CommandNotSupported, "devmongo does not support capped collections")
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	images, err := images(r)
	if err != nil {
		return err
	}
	return r.Patiently(ctx, func() error { return r.Store.Create(n, images) })
}

// images reads changeStreamPreAndPostImages, which 4.4 does not know.
func images(r *node.Request) (bool, error) {
	option, err := r.Document("changeStreamPreAndPostImages")
	if err != nil || option == nil {
		return false, err
	}
	if !r.Release.Since(profile.R60) {
		return false, fault.New(fault.InvalidOptions, "The field 'changeStreamPreAndPostImages' is not a valid collection option.")
	}
	v, _ := doc.Field(option, "enabled")
	return doc.Truth(v), nil
}

func runDrop(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only(); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	indexes := 0
	if err := r.Patiently(ctx, func() (err error) {
		indexes, err = r.Store.Drop(n)
		return err
	}); err != nil {
		if fault.Is(err, fault.NamespaceNotFound) && r.Release.Since(profile.R70) {
			return nil // since 7.0 it is no error
		}
		return err
	}
	b.Int32("nIndexesWas", int32(indexes)).String("ns", n.String())
	return nil
}

func runDropDatabase(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only(); err != nil {
		return err
	}
	if slices.Contains([]string{"local", "config", "admin"}, r.DB) {
		return fault.New(fault.IllegalOperation, "Dropping the '%s' database is prohibited.", r.DB)
	}
	return r.Patiently(ctx, func() error {
		dropped, err := r.Store.DropDatabase(r.DB)
		if dropped {
			b.String("dropped", r.DB)
		}
		return err
	})
}

func runRename(ctx context.Context, r *node.Request, _ *doc.Builder) error {
	if err := r.Only("to", "dropTarget"); err != nil {
		return err
	}
	if r.DB != "admin" {
		return fault.New(fault.Unauthorized, "renameCollection may only be run against the admin database.")
	}
	text, _ := r.Arg.StringValueOK()
	from, err := store.ParseName(text)
	if err != nil {
		return err
	}
	to, err := store.ParseName(r.Text("to"))
	if err != nil {
		return err
	}
	return r.Patiently(ctx, func() error { return r.Store.Rename(from, to, r.Truth("dropTarget")) })
}

func runCreateIndexes(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("indexes", "commitQuorum"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	specs, err := r.Documents("indexes")
	if err != nil {
		return err
	}
	var list []store.Index
	for _, d := range specs {
		i, err := parseIndex(d)
		if err != nil {
			return err
		}
		list = append(list, i)
	}
	return r.Patiently(ctx, func() error {
		before, after, created, err := r.Store.CreateIndexes(n, list)
		if err != nil {
			return err
		}
		b.Bool("createdCollectionAutomatically", created).Int32("numIndexesBefore", int32(before)).Int32("numIndexesAfter", int32(after))
		if before == after {
			b.String("note", "all indexes already exist")
		} else if !r.Standalone {
			b.String("commitQuorum", "votingMembers")
		}
		return nil
	})
}

// parseIndex takes indexes whose absence nobody can tell from the answers: not unique ones, not those that expire.
func parseIndex(d bsoncore.Document) (store.Index, error) {
	var i store.Index
	for name, v := range doc.All(d) {
		switch name {
		case "key":
			i.Key = doc.Clone(v.Data)
		case "name":
			i.Name, _ = v.StringValueOK()
		case "v", "ns", "background", "sparse", "hidden", "partialFilterExpression":
			// They change nothing that a client sees.
		case "unique":
			if doc.Truth(v) {
				return i, fault.New(fault.CommandNotSupported, "devmongo does not support unique indexes")
			}
		default:
			return i, fault.New(fault.CommandNotSupported, "devmongo does not support the index option '%s'", name)
		}
	}
	if doc.Empty(i.Key) || i.Name == "" {
		return i, fault.New(fault.FailedToParse, "The 'key' and 'name' fields are required in an index specification")
	}
	return i, nil
}

func runDropIndexes(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("index"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	name := r.Text("index")
	if name == "" {
		return fault.New(fault.CommandNotSupported, "devmongo drops indexes by name")
	}
	return r.Patiently(ctx, func() error {
		was, err := r.Store.DropIndexes(n, name)
		if err == nil {
			b.Int32("nIndexesWas", int32(was))
		}
		return err
	})
}

func runCollMod(ctx context.Context, r *node.Request, _ *doc.Builder) error {
	if err := r.Only("changeStreamPreAndPostImages"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	images, err := images(r)
	if err != nil {
		return err
	}
	if _, given := r.Field("changeStreamPreAndPostImages"); !given {
		return nil
	}
	return r.Patiently(ctx, func() error { return r.Store.SetImages(n, images) })
}

func runListCollections(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("filter", "nameOnly", "cursor", "authorizedCollections"); err != nil {
		return err
	}
	f, err := node.Filter(r.Body, "filter")
	if err != nil {
		return err
	}
	list := r.Store.Collections(r.DB)
	if r.DB == "local" && !r.Standalone {
		list = []store.Collection{{Name: "oplog.rs"}}
	}
	var docs []bsoncore.Document
	for _, c := range list {
		d := describe(c, r.Truth("nameOnly"))
		if f.Match(d) {
			docs = append(docs, d)
		}
	}
	return listing(ctx, r, b, r.DB+".$cmd.listCollections", docs)
}

func describe(c store.Collection, nameOnly bool) bsoncore.Document {
	b := doc.New().String("name", c.Name).String("type", "collection")
	if nameOnly {
		return b.Document()
	}
	b.Open("options")
	if c.Name == "oplog.rs" {
		b.Bool("capped", true)
	}
	if c.Images {
		b.Open("changeStreamPreAndPostImages").Bool("enabled", true).End()
	}
	b.End().Open("info").Bool("readOnly", false).Binary("uuid", 4, c.UUID[:]).End()
	if len(c.Indexes) > 0 {
		b.Doc("idIndex", indexDocument(c.Indexes[0]))
	}
	return b.Document()
}

func indexDocument(i store.Index) bsoncore.Document {
	return doc.New().Int32("v", 2).Doc("key", i.Key).String("name", i.Name).Document()
}

// listing answers with a cursor whose reply has another order of fields than a find's.
func listing(ctx context.Context, r *node.Request, b *doc.Builder, ns string, docs []bsoncore.Document) error {
	batch := docs[:min(len(docs), r.BatchSize(len(docs)))]
	rest := docs[len(batch):]
	var id int64
	if len(rest) > 0 {
		id = r.Cursors.Add(&cursor.Cursor{NS: ns, Source: cursor.NewList(rest)}).ID
	}
	b.Open("cursor").Int64("id", id).String("ns", ns).Docs("firstBatch", batch).End()
	return ctx.Err()
}

func runListIndexes(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("cursor"); err != nil {
		return err
	}
	n, err := r.Collection()
	if err != nil {
		return err
	}
	c, ok := r.Store.Collection(n)
	if !ok {
		return fault.New(fault.NamespaceNotFound, "ns does not exist: %s", n)
	}
	var docs []bsoncore.Document
	for _, i := range c.Indexes {
		docs = append(docs, indexDocument(i))
	}
	return listing(ctx, r, b, n.DB+".$cmd.listIndexes."+n.Coll, docs)
}

func runListDatabases(_ context.Context, r *node.Request, b *doc.Builder) error {
	if err := r.Only("filter", "nameOnly", "authorizedDatabases"); err != nil {
		return err
	}
	f, err := node.Filter(r.Body, "filter")
	if err != nil {
		return err
	}
	list := []store.Database{{Name: "admin"}, {Name: "config"}, {Name: "local"}}
	for _, d := range r.Store.Databases() {
		if d.Name == "admin" || d.Name == "config" {
			continue
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b store.Database) int { return strings.Compare(a.Name, b.Name) })
	var total int64
	var docs []bsoncore.Document
	for _, db := range list {
		d := doc.New().String("name", db.Name)
		if !r.Truth("nameOnly") {
			d.Int64("sizeOnDisk", db.Bytes).Bool("empty", db.Bytes == 0)
		}
		if entry := d.Document(); f.Match(entry) {
			docs = append(docs, entry)
			total += db.Bytes
		}
	}
	b.Docs("databases", docs)
	if !r.Truth("nameOnly") {
		b.Int64("totalSize", total)
	}
	return nil
}
