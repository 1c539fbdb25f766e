package mongodb

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// fewDatabases is the number of databases up to which Kinds does not first ask which of them exist.
const fewDatabases = 4

// Kind returns the kind of a namespace: of a collection, or of a database if Coll is empty. It is
// unknown if the user may not list collections.
func (d *Documents) Kind(ctx context.Context, ns change.Namespace) (change.NamespaceKind, error) {
	kinds, err := d.Kinds(ctx, []change.Namespace{ns})
	return kinds[ns], err
}

// Kinds returns the kinds of namespaces, with one listing of each existing database. It omits
// unknown ones. With an error it returns the kinds that it has found.
func (d *Documents) Kinds(ctx context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
	kinds, databases := make(map[change.Namespace]change.NamespaceKind, len(all)), make(map[string]map[string]bool)
	for _, ns := range all {
		if databases[ns.DB] == nil {
			databases[ns.DB] = make(map[string]bool)
		}
		databases[ns.DB][ns.Coll] = true
	}
	if len(databases) > fewDatabases {
		named := bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: slices.Collect(maps.Keys(databases))}}}}
		there, err := d.client.Driver().ListDatabaseNames(ctx, named)
		switch {
		case Denied(err):
			return kinds, nil
		case err != nil:
			return kinds, AsFault(err)
		}
		for db, colls := range databases {
			if !slices.Contains(there, db) {
				missing(kinds, db, colls)
				delete(databases, db)
			}
		}
	}
	for db, colls := range databases {
		if err := d.kindsOf(ctx, db, colls, kinds); err != nil {
			return kinds, err
		}
	}
	return kinds, nil
}

// missing notes that a database has no collections of these names.
func missing(kinds map[change.Namespace]change.NamespaceKind, db string, colls map[string]bool) {
	for coll := range colls {
		kinds[change.Namespace{DB: db, Coll: coll}] = change.NamespaceMissing
	}
}

// kindsOf adds the kinds of a database's collections. The empty name means any collection.
func (d *Documents) kindsOf(ctx context.Context, db string, colls map[string]bool, kinds map[change.Namespace]change.NamespaceKind) error {
	var filter, batch bson.D
	switch {
	case !colls[""]:
		filter = bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: slices.Collect(maps.Keys(colls))}}}}
	case len(colls) == 1: // one is enough
		filter, batch = bson.D{{Key: "type", Value: "collection"}}, bson.D{{Key: "batchSize", Value: 1}}
	}
	command := bson.D{
		{Key: "listCollections", Value: 1}, {Key: "nameOnly", Value: true}, {Key: "cursor", Value: append(bson.D{}, batch...)},
		{Key: "filter", Value: append(bson.D{}, filter...)}, {Key: "comment", Value: d.client.Application()},
	}
	cursor, err := d.client.Driver().Database(db).RunCommandCursor(ctx, command)
	if err != nil {
		if Denied(err) {
			err = nil
		}
		return AsFault(err)
	}
	defer func() { _ = cursor.Close(ctx) }()
	found := make(map[change.Namespace]change.NamespaceKind)
	for cursor.Next(ctx) {
		name, _ := cursor.Current.Lookup("name").StringValueOK()
		kind := kindOf(cursor.Current)
		if colls[name] {
			found[change.Namespace{DB: db, Coll: name}] = kind
		}
		if colls[""] && kind == change.NamespaceCollection {
			found[change.Namespace{DB: db}] = kind
		}
		if len(found) == len(colls) {
			break
		}
	}
	if err := cursor.Err(); err != nil {
		return AsFault(err)
	}
	missing(kinds, db, colls)
	maps.Copy(kinds, found)
	return nil
}

// kindOf returns the kind of an entry of a listing.
func kindOf(entry bson.Raw) change.NamespaceKind {
	switch kind, _ := entry.Lookup("type").StringValueOK(); kind { // other servers may not say
	case "view":
		return change.NamespaceView
	case "timeseries":
		return change.NamespaceTimeSeries
	}
	return change.NamespaceCollection
}
