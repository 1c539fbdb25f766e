package oplog

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// Kind is what an entry records.
type Kind uint8

// The kinds of entries.
const (
	noop Kind = iota
	Insert
	Update
	Replace
	Delete
	Drop
	Rename
	DropDatabase
	Create
	CreateIndexes
	DropIndexes
	Modify
)

// String is the operationType of the kind's change event.
func (k Kind) String() string {
	return [...]string{
		"noop", "insert", "update", "replace", "delete", "drop", "rename", "dropDatabase", "create", "createIndexes",
		"dropIndexes", "modify",
	}[k]
}

// op is the op field of the kind's oplog document.
func (k Kind) op() string {
	switch k {
	case noop:
		return "n"
	case Insert:
		return "i"
	case Update, Replace:
		return "u"
	case Delete:
		return "d"
	default:
		return "c"
	}
}

// crud reports whether the kind changes one document.
func (k Kind) crud() bool { return k >= Insert && k <= Delete }

// classic reports whether every change stream shows the kind, not only one with showExpandedEvents.
func (k Kind) classic() bool { return k >= Insert && k <= DropDatabase }

// Namespace is one collection under one name, or a database when Coll is empty. It never changes: a renamed
// collection has a new one. Pointers to it may be compared and kept.
type Namespace struct {
	DB, Coll string
	UUID     *[16]byte
}

func (n *Namespace) String() string {
	if n.Coll == "" {
		return n.DB
	}
	return n.DB + "." + n.Coll
}

// internal reports whether change streams over a whole database or cluster leave the namespace out.
func (n *Namespace) internal() bool {
	return n.DB == "admin" || n.DB == "config" || n.DB == "local" || strings.HasPrefix(n.Coll, "system.")
}

// Entry is one entry of the log. It is immutable.
type Entry struct {
	TS   uint64 // cluster time
	wall int64  // wall clock in milliseconds since the epoch
	kind Kind
	// shard is the number of the shard whose log has the entry; that of the config servers is the number of shards.
	shard uint8
	ns    *Namespace
	// Event is the change event as a stream with default options sees it; nil for kinds that are not Classic.
	Event bsoncore.Document
	// Detail is what few entries have; it may be nil.
	Detail *detail
}

// detail is what few entries have.
type detail struct {
	to      *Namespace // target of a rename
	session *Session   // of a retryable write or a transaction
	stmt    int32      // number of the statement in a retryable write
	Txn     *txn       // the transaction that the entry belongs to
	index   int32      // its place in the transaction
	// object is the o of a command's oplog document, or of a no-op's.
	object bsoncore.Document
	// description is the operationDescription of an expanded event, Before its stateBeforeChange.
	description, stateBefore bsoncore.Document
	// before and After are the images of the document, where the collection keeps them.
	before, after bsoncore.Document
	// disambiguated explains the paths of an update that have numbers as field names.
	disambiguated bsoncore.Document
}

// Session is what identifies a retryable write or a transaction.
type Session struct {
	LSID      bsoncore.Document // {id, uid}
	TxnNumber int64
}

// txn is what the entries of one transaction share. A transaction too large for one oplog document has
// several, with cluster times of their own before the commit's.
type txn struct {
	count int32
	parts []part
}

// part is one applyOps document: the entries up to End, at cluster time TS.
type part struct {
	ts  uint64
	end int32
}

func (e *Entry) detail() *detail {
	if e.Detail == nil {
		return &detail{}
	}
	return e.Detail
}

// to is the target of a rename, nil for everything else.
func (e *Entry) to() *Namespace { return e.detail().to }

// txnIndex is the entry's place in its transaction, 0 outside of one.
func (e *Entry) txnIndex() int32 { return e.detail().index }

// continues reports whether the entry belongs to the same transaction as the one before it.
func (e *Entry) continues() bool { return e.Detail != nil && e.Detail.Txn != nil && e.Detail.index > 0 }

// initiation reports whether the entry is the first of a new replica set, before which nothing was.
func (e *Entry) initiation() bool {
	if e.kind != noop || e.Detail == nil {
		return false
	}
	v, _ := doc.Field(e.Detail.object, "msg")
	text, _ := v.StringValueOK()
	return text == initiation
}

const initiation = "initiating set"

// entryOverhead is what an entry costs besides its documents.
const entryOverhead = 96

func (e *Entry) size() int64 {
	n := entryOverhead + len(e.Event)
	if d := e.Detail; d != nil {
		n += len(d.object) + len(d.before) + len(d.after)
	}
	return int64(n)
}
