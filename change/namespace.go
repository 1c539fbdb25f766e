package change

// A Namespace names a collection of a database, or with an empty Coll the database itself.
type Namespace struct {
	DB, Coll string
}

// String is the namespace as MongoDB writes it: db.coll, or db alone.
func (n Namespace) String() string {
	if n.Coll == "" {
		return n.DB
	}
	return n.DB + "." + n.Coll
}
