package change

// A NamespaceKind is the kind of a namespace in MongoDB.
type NamespaceKind uint8

// The kinds.
const (
	// NamespaceUnknown: the kind could not be read.
	NamespaceUnknown NamespaceKind = iota
	// NamespaceCollection is a collection, or a database that has one.
	NamespaceCollection
	// NamespaceMissing is nothing yet.
	NamespaceMissing
	// NamespaceView and NamespaceTimeSeries have no changes (manual: "Change Streams").
	NamespaceView
	NamespaceTimeSeries
)

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
