package devmongo

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

func runCreate(ctx context.Context, r *request, _ *doc.Builder) error {
	n, err := r.collection()
	if err != nil {
		return err
	}
	o, err := createOptions(r)
	if err != nil {
		return err
	}
	return r.patiently(ctx, func() error { return r.store.Create(n, o) })
}

// createOptions reads the options of a new collection.
func createOptions(r *request) (o store.Options, err error) {
	if o.Images, err = images(r); err != nil {
		return o, err
	}
	shown := doc.New()
	for _, name := range []string{"capped", "size", "max", "viewOn", "pipeline", "timeseries", "collation"} {
		if v, ok := r.field(name); ok {
			shown.Value(name, v)
		}
	}
	o.Shown = shown.Document()
	o.Size, _ = r.int("size")
	o.Max, _ = r.int("max")
	_, isView := r.field("viewOn")
	_, isSeries := r.field("timeseries")
	collation, err := r.document("collation")
	if err != nil {
		return o, err
	}
	if collation != nil {
		locale, _ := doc.Field(collation, "locale")
		strength, _ := doc.Field(collation, "strength")
		text, _ := locale.StringValueOK()
		n, _ := doc.Int(strength)
		if o.FoldCase = text == "en" && n == 2 && doc.Len(collation) == 2; !o.FoldCase {
			return o, wire.Errorf(wire.CommandNotSupported, "devmongo knows the collation of locale en and strength 2 only")
		}
	}
	switch {
	case isView:
		o.Kind = "view"
	case isSeries && !r.profile.Release.Since(oplog.R60):
		return o, wire.Errorf(40415, "BSON field 'create.timeseries' is an unknown field.")
	case isSeries:
		o.Kind = "timeseries"
	case r.truth("capped") && o.Size <= 0:
		return o, wire.Errorf(wire.InvalidOptions, "the 'size' field is required when 'capped' is true")
	case !r.truth("capped") && (o.Size > 0 || o.Max > 0):
		return o, wire.Errorf(wire.InvalidOptions, "the 'capped' field needs to be true when either the 'size' or 'max' fields are present")
	}
	return o, nil
}

// images reads changeStreamPreAndPostImages, which 4.4 does not know.
func images(r *request) (bool, error) {
	option, err := r.document("changeStreamPreAndPostImages")
	if err != nil || option == nil {
		return false, err
	}
	if !r.profile.Release.Since(oplog.R60) {
		return false, wire.Errorf(wire.InvalidOptions, "The field 'changeStreamPreAndPostImages' is not a valid collection option.")
	}
	v, _ := doc.Field(option, "enabled")
	return doc.Truth(v), nil
}

func runDrop(ctx context.Context, r *request, b *doc.Builder) error {
	indexes := 0
	if err := r.patiently(ctx, func() (err error) {
		indexes, err = r.store.Drop(r.ns)
		return err
	}); err != nil {
		if wire.HasCode(err, wire.NamespaceNotFound) && r.profile.Release.Since(oplog.R70) {
			return nil // since 7.0 it is no error
		}
		return err
	}
	b.Int32("nIndexesWas", int32(indexes)).String("ns", r.ns.String())
	return nil
}

func runDropDatabase(ctx context.Context, r *request, b *doc.Builder) error {
	if slices.Contains([]string{"local", "config", "admin"}, r.db) {
		return wire.Errorf(wire.IllegalOperation, "Dropping the '%s' database is prohibited.", r.db)
	}
	return r.patiently(ctx, func() error {
		dropped, err := r.store.DropDatabase(r.db)
		if dropped {
			b.String("dropped", r.db)
		}
		return err
	})
}

func runRename(ctx context.Context, r *request, _ *doc.Builder) error {
	if r.db != "admin" {
		return wire.Errorf(wire.Unauthorized, "renameCollection may only be run against the admin database.")
	}
	text, _ := r.arg.StringValueOK()
	from, err := store.ParseName(text)
	if err != nil {
		return err
	}
	to, err := store.ParseName(r.text("to"))
	if err != nil {
		return err
	}
	return r.patiently(ctx, func() error { return r.store.Rename(from, to, r.truth("dropTarget")) })
}

func runCreateIndexes(ctx context.Context, r *request, b *doc.Builder) error {
	specs, err := r.documents("indexes")
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
	return r.patiently(ctx, func() error {
		before, after, created, err := r.store.CreateIndexes(r.ns, list)
		if err != nil {
			return err
		}
		b.Bool("createdCollectionAutomatically", created).Int32("numIndexesBefore", int32(before)).Int32("numIndexesAfter", int32(after))
		if before == after {
			b.String("note", "all indexes already exist")
		} else if !r.config.Standalone {
			b.String("commitQuorum", "votingMembers")
		}
		return nil
	})
}

// parseIndex accepts indexes that do not change answers: neither unique ones, nor those that
// expire.
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
				return i, wire.Errorf(wire.CommandNotSupported, "devmongo does not support unique indexes")
			}
		default:
			return i, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the index option '%s'", name)
		}
	}
	if doc.Empty(i.Key) || i.Name == "" {
		return i, wire.Errorf(wire.FailedToParse, "The 'key' and 'name' fields are required in an index specification")
	}
	return i, nil
}

func runDropIndexes(ctx context.Context, r *request, b *doc.Builder) error {
	name := r.text("index")
	if name == "" {
		return wire.Errorf(wire.CommandNotSupported, "devmongo drops indexes by name")
	}
	return r.patiently(ctx, func() error {
		was, err := r.store.DropIndexes(r.ns, name)
		if err == nil {
			b.Int32("nIndexesWas", int32(was))
		}
		return err
	})
}

func runCollMod(ctx context.Context, r *request, _ *doc.Builder) error {
	images, err := images(r)
	if err != nil {
		return err
	}
	if _, given := r.field("changeStreamPreAndPostImages"); !given {
		return nil
	}
	return r.patiently(ctx, func() error { return r.store.SetImages(r.ns, images) })
}

func runListCollections(ctx context.Context, r *request, b *doc.Builder) error {
	f, err := filterField(r.body, "filter")
	if err != nil {
		return err
	}
	list := r.store.Collections(r.db)
	if r.db == "local" && !r.config.Standalone {
		list = []store.Collection{{Name: "oplog.rs"}}
	}
	var docs []bsoncore.Document
	for _, c := range list {
		d := describe(c, r.truth("nameOnly"))
		if f.Match(d) {
			docs = append(docs, d)
		}
	}
	return listing(ctx, r, b, r.db+".$cmd.listCollections", docs)
}

func describe(c store.Collection, nameOnly bool) bsoncore.Document {
	b := doc.New().String("name", c.Name).String("type", cmp.Or(c.Kind, "collection"))
	if nameOnly {
		return b.Document()
	}
	b.Open("options")
	if c.Name == "oplog.rs" {
		b.Bool("capped", true)
	}
	if c.Shown != nil {
		b.Raw(c.Shown[4 : len(c.Shown)-1])
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
func listing(ctx context.Context, r *request, b *doc.Builder, ns string, docs []bsoncore.Document) error {
	batch := docs[:min(len(docs), r.batchSize(len(docs)))]
	rest := docs[len(batch):]
	var id int64
	if len(rest) > 0 {
		id = r.cursors.add(&openCursor{ns: ns, source: newListSource(rest)}).id
	}
	b.Open("cursor").Int64("id", id).String("ns", ns).Docs("firstBatch", batch).End()
	return ctx.Err()
}

func runListIndexes(ctx context.Context, r *request, b *doc.Builder) error {
	c, ok := r.store.Collection(r.ns)
	if !ok {
		return wire.Errorf(wire.NamespaceNotFound, "ns does not exist: %s", r.ns)
	}
	var docs []bsoncore.Document
	for _, i := range c.Indexes {
		docs = append(docs, indexDocument(i))
	}
	return listing(ctx, r, b, r.ns.DB+".$cmd.listIndexes."+r.ns.Coll, docs)
}

func runListDatabases(_ context.Context, r *request, b *doc.Builder) error {
	f, err := filterField(r.body, "filter")
	if err != nil {
		return err
	}
	list := []store.Database{{Name: "admin"}, {Name: "config"}, {Name: "local"}}
	for _, d := range r.store.Databases() {
		if d.Name == "admin" || d.Name == "config" {
			continue
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b store.Database) int { return strings.Compare(a.Name, b.Name) })
	var total int64
	var docs []bsoncore.Document
	for _, db := range list {
		if !r.lists(db.Name) {
			continue
		}
		d := doc.New().String("name", db.Name)
		if !r.truth("nameOnly") {
			d.Int64("sizeOnDisk", db.Bytes).Bool("empty", db.Bytes == 0)
		}
		if entry := d.Document(); f.Match(entry) {
			docs = append(docs, entry)
			total += db.Bytes
		}
	}
	b.Docs("databases", docs)
	if !r.truth("nameOnly") {
		b.Int64("totalSize", total)
	}
	return nil
}
