package oplog

// streamScope is what a stream watches: a collection, a database when Coll is empty, everything when DB is too.
type streamScope struct{ db, coll string }

// covers reports whether a namespace lies in the scope.
func (s streamScope) covers(ns *Namespace) bool {
	switch {
	case ns == nil:
		return false
	case s.coll != "":
		return ns.DB == s.db && ns.Coll == s.coll
	case s.db != "":
		return ns.DB == s.db && !ns.internal()
	default:
		return !ns.internal()
	}
}

// shows reports whether the scope shows an entry. A collection sees renames onto itself too, and never the
// end of its database: its own drop comes first.
func (s streamScope) shows(e *Entry) bool {
	switch e.kind {
	case noop:
		return false
	case Rename:
		return s.covers(e.ns) || s.covers(e.to())
	case DropDatabase:
		return s.coll == "" && s.covers(e.ns)
	default:
		return s.covers(e.ns)
	}
}

// ends reports whether an entry that the scope shows invalidates its streams.
func (s streamScope) ends(e *Entry) bool {
	switch e.kind {
	case Drop, Rename:
		return s.coll != ""
	case DropDatabase:
		return s.db != ""
	default:
		return false
	}
}
