package stream

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// A Watch selects the changes of the deployment that the node reads.
type Watch struct {
	// Namespaces are `db.coll` or `db.*`; empty means everything but MongoDB's own databases.
	Namespaces []string
	// Operations are insert, update, replace and delete; empty means all. Collection-level events
	// are always read.
	Operations []string
	// Exclude is a database that is never read, because it contains our own checkpoints.
	Exclude string
	// FullDocument is MongoDB's option of that name; empty leaves it out. It does not change which
	// events exist.
	FullDocument string
	// BeforeChange is MongoDB's fullDocumentBeforeChange; empty leaves it out. Fragments of large
	// events depend on it, and so do their tokens.
	BeforeChange string
}

// Coverage returns which changes are read.
func (w Watch) Coverage() change.Coverage {
	return change.Coverage{Namespaces: w.Namespaces, Operations: w.Operations}
}

// collectionEvents are the operations that concern documents without naming one; every watch reads
// them.
//
//nolint:gochecknoglobals // a constant table
var collectionEvents = []string{"drop", "rename", "dropDatabase", "invalidate"}

// documentEvents are the operations that name a document. Streams with expanded events have further
// operations, which no watch requests.
//
//nolint:gochecknoglobals // a constant table
var documentEvents = []string{"insert", "update", "replace", "delete"}

// split sorts the namespaces into whole databases and collections.
func (w Watch) split() (databases []string, collections []change.Namespace) {
	for _, ns := range w.Namespaces {
		db, coll, _ := strings.Cut(ns, ".")
		if coll == "*" {
			databases = append(databases, db)
		} else {
			collections = append(collections, change.Namespace{DB: db, Coll: coll})
		}
	}
	return unique(databases), uniqueBy(collections, change.Namespace.String)
}

// match builds the $match stage, nil when there is nothing to filter. It matches databases and
// collections separately, because the server scans these ten times faster than pairs; Keeps drops
// the pairs that the watch does not have.
func (w Watch) match(can abilities) bson.D {
	var all bson.A
	if databases, collections := w.split(); len(w.Namespaces) > 0 {
		var dbs, colls []string
		for _, ns := range collections {
			dbs, colls = append(dbs, ns.DB), append(colls, ns.Coll)
		}
		dbs, colls = unique(dbs), unique(colls)
		var either bson.A
		within := func(field string) {
			if len(databases) > 0 {
				either = append(either, bson.D{{Key: field + ".db", Value: bson.D{{Key: "$in", Value: databases}}}})
			}
			if len(collections) > 0 {
				either = append(either, bson.D{
					{Key: field + ".db", Value: bson.D{{Key: "$in", Value: dbs}}}, {Key: field + ".coll", Value: bson.D{{Key: "$in", Value: colls}}},
				})
			}
		}
		within("ns")
		within("to")
		either = append(either,
			bson.D{{Key: "operationType", Value: "dropDatabase"}, {Key: "ns.db", Value: bson.D{{Key: "$in", Value: unique(append(dbs, databases...))}}}},
			bson.D{{Key: "operationType", Value: "invalidate"}})
		all = append(all, bson.D{{Key: "$or", Value: either}})
	}
	if w.Exclude != "" {
		all = append(all, bson.D{{Key: "ns.db", Value: bson.D{{Key: "$ne", Value: w.Exclude}}}})
	}
	asked := w.Operations
	if len(asked) == 0 && can.expanded {
		asked = documentEvents
	}
	if len(asked) > 0 {
		operations := unique(append(slices.Clone(asked), collectionEvents...))
		all = append(all, bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: operations}}}})
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0].(bson.D) //nolint:forcetypeassert // built above
	}
	return bson.D{{Key: "$and", Value: all}}
}

// Keeps returns the filter that the node applies after the server's, nil where that is exact: it
// drops the pairs of a database and a collection that the watch does not have. It allocates
// nothing.
func (w Watch) Keeps() func(*change.Event) bool {
	if _, collections := w.split(); len(collections) == 0 {
		return nil
	}
	return w.Exact()
}

// Exact returns the filter of all events that the watch has, for events that no server has filtered
// by it.
func (w Watch) Exact() func(*change.Event) bool {
	databases, collections := w.split()
	without := w.Without()
	whole := make(map[string]bool, len(databases))
	for _, db := range databases {
		whole[db] = true
	}
	asked := make(map[string]map[string]bool)
	for _, ns := range collections {
		if asked[ns.DB] == nil {
			asked[ns.DB] = make(map[string]bool)
		}
		asked[ns.DB][ns.Coll] = true
	}
	wants := func(db, coll []byte) bool {
		return len(db) == 0 || len(w.Namespaces) == 0 || whole[string(db)] || asked[string(db)] != nil && (len(coll) == 0 || asked[string(db)][string(coll)])
	}
	return func(e *change.Event) bool {
		if slices.Contains(without, e.Op()) || w.Exclude != "" && string(e.DB()) == w.Exclude {
			return false
		}
		return wants(e.DB(), e.Coll()) || len(e.ToDB()) > 0 && wants(e.ToDB(), e.ToColl())
	}
}

// Without returns the operations that are not read.
func (w Watch) Without() (ops []change.Op) {
	for _, name := range documentEvents {
		if op, _ := change.ParseOp(name); len(w.Operations) > 0 && !slices.Contains(w.Operations, name) {
			ops = append(ops, op)
		}
	}
	return ops
}

// Covers reports whether the node reads changes of a collection. An empty Coll asks for any
// collection of the database, an empty DB for any database. MongoDB's own databases and our
// checkpoints are not covered: change streams leave them out, and clients must not read them
// through a node.
func (w Watch) Covers(ns change.Namespace) bool {
	switch {
	case slices.Contains(ownDatabases, ns.DB), w.Exclude != "" && ns.DB == w.Exclude, strings.HasPrefix(ns.Coll, "system."):
		return false
	case len(w.Namespaces) == 0:
		return true
	}
	return slices.ContainsFunc(w.Namespaces, func(watched string) bool {
		db, coll, _ := strings.Cut(watched, ".")
		return (ns.DB == "" || ns.DB == db) && (ns.Coll == "" || coll == "*" || ns.Coll == coll)
	})
}

// ownDatabases are the databases that MongoDB reserves (manual: "Change Streams", "Watch a
// Deployment").
//
//nolint:gochecknoglobals // a constant table
var ownDatabases = []string{"admin", "config", "local"}

// fingerprint is a hash of the settings that decide which events a stream has and which tokens are
// valid.
func (w Watch) fingerprint(can abilities) string {
	opened := bson.D{
		{Key: "scope", Value: cmp.Or(can.database, "cluster")}, {Key: "match", Value: w.match(can)}, {Key: "split", Value: can.split},
	}
	if can.expanded {
		opened = append(opened, bson.E{Key: "expanded", Value: true})
	}
	if w.BeforeChange != "" {
		opened = append(opened, bson.E{Key: "before", Value: w.BeforeChange})
	}
	spec, err := bson.MarshalExtJSON(opened, true, false)
	if err != nil {
		panic(fmt.Sprintf("mongodb: marshal the stream's description: %v", err)) // strings only
	}
	sum := sha256.Sum256(spec)
	return hex.EncodeToString(sum[:8])
}

// unique returns the values sorted, each once.
func unique[T cmp.Ordered](values []T) []T {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

func uniqueBy[T any](values []T, key func(T) string) []T {
	values = slices.Clone(values)
	slices.SortFunc(values, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return slices.CompactFunc(values, func(a, b T) bool { return key(a) == key(b) })
}
