package devmongo

import (
	"slices"
	"strings"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// A Privilege lets a user do something with a resource, as MongoDB has it: the actions on one
// collection; on all collections of a database, where Coll is empty; on a collection of that name
// in every database, where DB is empty; on all of them, where both are, except local and config; or
// on the cluster. Collections whose names begin with system. are covered by their whole name only.
type Privilege struct {
	DB, Coll string
	Cluster  bool
	Actions  []string
	all      bool // everything, everywhere
}

// Privileges of MongoDB's built-in roles, as far as devmongo has the actions.
//
//nolint:gochecknoglobals // constant tables
var (
	readActions  = []string{"find", "changeStream", "collStats", "killCursors", "listCollections", "listIndexes"}
	writeActions = []string{"insert", "update", "remove", "createCollection", "dropCollection", "createIndex", "dropIndex"}
)

// Read is the role read of a database; of none, readAnyDatabase.
func Read(db string) []Privilege {
	role := []Privilege{{DB: db, Actions: readActions}}
	if db == "" {
		role = append(role, Privilege{Cluster: true, Actions: []string{"listDatabases"}})
	}
	return role
}

// ReadWrite is the role readWrite of a database; of none, readWriteAnyDatabase.
func ReadWrite(db string) []Privilege {
	return append(Read(db), Privilege{DB: db, Actions: writeActions})
}

// ClusterMonitor is the role of that name.
func ClusterMonitor() []Privilege {
	return []Privilege{
		{Cluster: true, Actions: []string{"serverStatus", "replSetGetStatus", "replSetGetConfig", "listDatabases", "getParameter", "getCmdLineOpts"}},
		{DB: "local", Coll: "system.replset", Actions: []string{"find"}}, {DB: "config", Actions: readActions}, {DB: "local", Coll: "oplog.rs", Actions: []string{"collStats"}},
	}
}

// Root is the role root: everything.
func Root() []Privilege { return []Privilege{{all: true}} }

// A need is an action that a command takes on a resource: a collection, a database, all databases
// where DB is empty, or the cluster.
type need struct {
	db, coll string
	cluster  bool
	action   string
}

// covers reports whether the privilege is enough.
func (p Privilege) covers(n need) bool {
	system := strings.HasPrefix(n.coll, "system.")
	switch {
	case p.all:
		return true
	case !slices.Contains(p.Actions, n.action) || p.Cluster != n.cluster:
		return false
	case n.cluster:
		return true
	case n.db == "":
		return p.DB == "" && p.Coll == ""
	case p.DB == "" && p.Coll == "":
		return !system && n.db != "local" && n.db != "config"
	case p.DB == "":
		return p.Coll == n.coll
	case p.Coll == "":
		return p.DB == n.db && !system
	}
	return p.DB == n.db && p.Coll == n.coll
}

// unguarded are the commands that need no authentication, free those that every user may run.
//
//nolint:gochecknoglobals // constant tables
var (
	unguarded = []string{
		"hello", "isMaster", "ismaster", "ping", "buildInfo", "buildinfo", "saslStart", "saslContinue", "authenticate", "logout", "connectionStatus", "whatsmyuri",
	}
	free = []string{"startSession", "refreshSessions", "endSessions", "killSessions", "commitTransaction", "abortTransaction", "killCursors", "listDatabases"}
)

// actions are what commands take on the collection that they name.
//
//nolint:gochecknoglobals // a constant table
var actions = map[string][]string{
	"find": {"find"}, "count": {"find"}, "aggregate": {"find"}, "listIndexes": {"listIndexes"}, "collStats": {"collStats"}, "insert": {"insert"},
	"update": {"update"}, "delete": {"remove"}, "findAndModify": {"find", "update"}, "findandmodify": {"find", "update"}, "create": {"createCollection"},
	"drop": {"dropCollection"}, "createIndexes": {"createIndex"}, "dropIndexes": {"dropIndex"}, "collMod": {"collMod"},
}

// needs returns the privileges that the command needs.
func (r *request) needs() (all []need) {
	coll, named := r.arg.StringValueOK()
	at := func(db, coll string, actions ...string) []need {
		for _, action := range actions {
			all = append(all, need{db: db, coll: coll, action: action})
		}
		return all
	}
	streams := []string{"find", "changeStream"}
	if id, ok := r.arg.Int64OK(); ok && r.name == "getMore" {
		coll = r.text("collection")
		switch streaming := r.cursors.streams(id); {
		case streaming && coll == "$cmd.aggregate" && r.db == "admin":
			return at("", "", streams...)
		case streaming && coll == "$cmd.aggregate":
			return at(r.db, "", streams...)
		case streaming:
			return at(r.db, coll, streams...)
		case strings.HasPrefix(coll, "$cmd."):
			return nil // of a listing, whose right was checked
		}
		return at(r.db, coll, "find")
	}
	switch _, stream := r.changeStream(); {
	case stream && r.db == "admin":
		return at("", "", streams...)
	case stream:
		return at(r.db, coll, streams...)
	case r.name == "listCollections":
		return at(r.db, "", "listCollections")
	case r.name == "dropDatabase":
		return at(r.db, "", "dropDatabase")
	case named && actions[r.name] != nil:
		return at(r.db, coll, actions[r.name]...)
	}
	return []need{{cluster: true, action: r.name}}
}

// authorize refuses commands that the connection's user may not run. If the server has no users,
// every client may run everything.
func (r *request) authorize() error {
	if len(r.config.Users) == 0 || slices.Contains(unguarded, r.name) {
		return nil
	}
	account := r.users.of(r.client)
	if account == nil {
		return wire.Errorf(wire.Unauthorized, "command %s requires authentication", r.name)
	}
	if slices.Contains(free, r.name) {
		return nil
	}
	for _, n := range r.needs() {
		if !account.may(n) {
			return wire.Errorf(wire.Unauthorized, "not authorized on %s to execute command %s", r.db, doc.Text(r.body))
		}
	}
	return nil
}

// lists reports whether a listing of databases shows one: those in which the user may find
// something.
func (r *request) lists(db string) bool {
	if len(r.config.Users) == 0 {
		return true
	}
	account := r.users.of(r.client)
	return account != nil && (account.may(need{cluster: true, action: "listDatabases"}) ||
		slices.ContainsFunc(account.Privileges, func(p Privilege) bool { return p.DB == db && slices.Contains(p.Actions, "find") }))
}

// may reports whether one of the user's privileges covers a need.
func (a *account) may(n need) bool {
	return slices.ContainsFunc(a.Privileges, func(p Privilege) bool { return p.covers(n) })
}
