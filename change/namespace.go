package change

// A Namespace is a collection, or a database if Coll is empty.
type Namespace struct {
	DB, Coll string
}

// String returns the namespace in MongoDB's form: db.coll, or db.
func (n Namespace) String() string {
	if n.Coll == "" {
		return n.DB
	}
	return n.DB + "." + n.Coll
}
