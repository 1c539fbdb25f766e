package stream

import (
	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// Scope is what a stream watches: a collection, a database when Coll is empty, everything when DB is too.
type Scope struct{ DB, Coll string }

// covers reports whether a namespace lies in the scope.
func (s Scope) covers(ns *oplog.Namespace) bool {
	switch {
	case ns == nil:
		return false
	case s.Coll != "":
		return ns.DB == s.DB && ns.Coll == s.Coll
	case s.DB != "":
		return ns.DB == s.DB && !ns.Internal()
	default:
		return !ns.Internal()
	}
}

// shows reports whether the scope shows an entry. A collection sees renames onto itself too, and never the
// end of its database: its own drop comes first.
func (s Scope) shows(e *oplog.Entry) bool {
	switch e.Kind {
	case oplog.Noop:
		return false
	case oplog.Rename:
		return s.covers(e.NS) || s.covers(e.To())
	case oplog.DropDatabase:
		return s.Coll == "" && s.covers(e.NS)
	default:
		return s.covers(e.NS)
	}
}

// ends reports whether an entry that the scope shows invalidates its streams.
func (s Scope) ends(e *oplog.Entry) bool {
	switch e.Kind {
	case oplog.Drop, oplog.Rename:
		return s.Coll != ""
	case oplog.DropDatabase:
		return s.DB != ""
	default:
		return false
	}
}
