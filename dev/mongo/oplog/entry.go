package oplog

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
)

// Kind is the kind of an entry.
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

// Namespace is one collection under one name, or a database when Coll is empty. It never changes: a
// renamed collection has a new one. Pointers to it may be compared and kept.
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
	Wall int64  // wall clock in milliseconds since the epoch
	Kind Kind
	// Shard is the number of the shard whose log has the entry; that of the config servers is the
	// number of shards.
	Shard uint8
	NS    *Namespace
	// Event is the change event as a stream with default options sees it; nil for kinds that are
	// not Classic.
	Event bsoncore.Document
	// Detail is what few entries have; it may be nil.
	Detail *Detail
}

// Detail is what few entries have.
type Detail struct {
	To      *Namespace // target of a rename
	Session *Session   // of a retryable write or a transaction
	Stmt    int32      // number of the statement in a retryable write
	Txn     *Txn       // the transaction that the entry belongs to
	Index   int32      // its number in the transaction
	Place   int32      // its place in the transaction as in tokens: each shard counts its own
	// Object is the o of a command's oplog document, or of a no-op's.
	Object bsoncore.Document
	// Description is the operationDescription of an expanded event, Before its stateBeforeChange.
	Description, StateBefore bsoncore.Document
	// Before and After are the images of the document, where the collection keeps them.
	Before, After bsoncore.Document
	// Disambiguated explains the paths of an update that have numbers as field names.
	Disambiguated bsoncore.Document
}

// Session is what identifies a retryable write or a transaction.
type Session struct {
	LSID      bsoncore.Document // {id, uid}
	TxnNumber int64
}

// Txn is the shared data of a transaction's entries. A transaction too large for one oplog document
// has several, with earlier cluster times than the commit's.
type Txn struct {
	Count int32
	Parts []Part
}

// Part is one applyOps document: the entries up to End, at cluster time TS.
type Part struct {
	TS  uint64
	End int32
}

func (e *Entry) detail() *Detail {
	if e.Detail == nil {
		return &Detail{}
	}
	return e.Detail
}

// to is the target of a rename, nil for everything else.
func (e *Entry) to() *Namespace { return e.detail().To }

// place is the entry's place in its transaction, 0 outside of one.
func (e *Entry) place() int32 { return e.detail().Place }

// continues reports whether the entry belongs to the same transaction as the one before it.
func (e *Entry) continues() bool { return e.Detail != nil && e.Detail.Txn != nil && e.Detail.Index > 0 }

// initiation reports whether the entry is the first of a new replica set, before which nothing was.
func (e *Entry) initiation() bool {
	if e.Kind != noop || e.Detail == nil {
		return false
	}
	v, _ := doc.Field(e.Detail.Object, "msg")
	text, _ := v.StringValueOK()
	return text == initiation
}

const initiation = "initiating set"

// entryOverhead is the memory of an entry besides its documents.
const entryOverhead = 96

func (e *Entry) size() int64 {
	n := entryOverhead + len(e.Event)
	if d := e.Detail; d != nil {
		n += len(d.Object) + len(d.Before) + len(d.After)
	}
	return int64(n)
}

// Op is a change on its way into the log.
type Op struct {
	Kind Kind
	NS   *Namespace
	To   *Namespace
	// ID is the _id of the document that changed; Doc is the whole document of an insert or a
	// replace.
	ID  bsoncore.Value
	Doc bsoncore.Document
	// Updated, Removed and Truncated describe an update. Truncated is an array, nil on releases
	// that have none.
	Updated       bsoncore.Document
	Removed       []string
	Truncated     []byte
	Disambiguated bsoncore.Document
	// Object, Description and StateBefore belong to commands and no-ops.
	Object, Description, StateBefore bsoncore.Document
	Before, After                    bsoncore.Document
	Session                          *Session
	Stmt                             int32
	shard                            uint8 // of a no-op
}

// detail returns what of the operation is not in its event, nil when there is nothing.
func (op *Op) detail() *Detail {
	isPlain := op.To == nil && op.Session == nil && op.Object == nil
	hasStates := op.Before != nil || op.After != nil || op.Disambiguated != nil
	if isPlain && !hasStates {
		return nil
	}
	return &Detail{
		To: op.To, Session: op.Session, Stmt: op.Stmt, Object: op.Object, Description: op.Description,
		StateBefore: op.StateBefore, Before: op.Before, After: op.After, Disambiguated: op.Disambiguated,
	}
}

// encoder writes events; it belongs to the writer of the log.
type encoder struct {
	release Release
	tokens  tokenBuilder
	buf     []byte
	key     []byte
}

// event encodes the change event of an entry, without copying it out of the encoder's buffer.
func (x *encoder) event(e *Entry, op *Op) []byte {
	at, dst := bsoncore.AppendDocumentStart(x.buf[:0])
	if d := e.Detail; d != nil && d.Txn != nil {
		dst = bsoncore.AppendInt64Element(dst, "txnNumber", d.Session.TxnNumber)
		dst = bsoncore.AppendDocumentElement(dst, "lsid", d.Session.LSID)
	}
	if op.To != nil {
		dst = appendNamespace(dst, "to", op.To)
	}
	dst = bsoncore.AppendHeader(dst, bsoncore.TypeEmbeddedDocument, "_id")
	dst = x.tokens.append(dst, x.token(e, op))
	dst = bsoncore.AppendStringElement(dst, "operationType", e.Kind.String())
	dst = bsoncore.AppendTimestampElement(dst, "clusterTime", uint32(e.TS>>32), uint32(e.TS))
	if x.release.WallTime() {
		dst = bsoncore.AppendDateTimeElement(dst, "wallTime", e.Wall)
	}
	if op.Kind == Insert || op.Kind == Replace {
		dst = bsoncore.AppendDocumentElement(dst, "fullDocument", op.Doc)
	}
	dst = appendNamespace(dst, "ns", e.NS)
	if e.Kind.crud() {
		dst = bsoncore.AppendDocumentElement(dst, "documentKey", x.documentKey(op))
	}
	if op.Kind == Update {
		dst = appendDescription(dst, op)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	x.buf = dst
	return dst
}

func (x *encoder) documentKey(op *Op) []byte {
	at, key := bsoncore.AppendDocumentStart(x.key[:0])
	key = bsoncore.AppendValueElement(key, "_id", op.ID)
	x.key, _ = bsoncore.AppendDocumentEnd(key, at)
	return x.key
}

func (x *encoder) token(e *Entry, op *Op) Token {
	t := Token{
		TS: e.TS, Version: x.release.tokenVersion(), Type: TokenEvent, TxnOpIndex: e.place(), Fragment: NoFragment,
	}
	if e.Kind != DropDatabase {
		t.UUID = e.NS.UUID
	}
	if t.Version >= 2 {
		t.Identifier = identifier(e.Kind, op.ID, op.Description)
	} else if e.Kind.crud() {
		t.Identifier = x.documentKey(op)
	}
	return t
}

// identifier is the event identifier of a version 2 token.
func identifier(k Kind, id bsoncore.Value, description bsoncore.Document) bsoncore.Document {
	b := doc.New().String("operationType", k.String())
	switch {
	case k.crud():
		b.Open("documentKey").Value("_id", id).End()
	case description != nil:
		b.Doc("operationDescription", description)
	}
	return b.Document()
}

func appendNamespace(dst []byte, key string, ns *Namespace) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, key)
	dst = bsoncore.AppendStringElement(dst, "db", ns.DB)
	if ns.Coll != "" {
		dst = bsoncore.AppendStringElement(dst, "coll", ns.Coll)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func appendDescription(dst []byte, op *Op) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, "updateDescription")
	dst = bsoncore.AppendDocumentElement(dst, "updatedFields", op.Updated)
	list, dst := bsoncore.AppendArrayElementStart(dst, "removedFields")
	for i, name := range op.Removed {
		dst = bsoncore.AppendStringElement(dst, doc.Index(i), name)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, list)
	if op.Truncated != nil {
		dst = bsoncore.AppendArrayElement(dst, "truncatedArrays", op.Truncated)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

// Release is a MongoDB release, as its first two numbers.
type Release string

// The releases that devmongo can be.
const (
	R44 Release = "4.4"
	R60 Release = "6.0"
	R70 Release = "7.0"
	R80 Release = "8.0"
	R90 Release = "9.0"
)

// Since reports whether the release is the other one or a later one. All have majors of one digit.
func (r Release) Since(other Release) bool { return r >= other }

// WallTime reports whether events carry wallTime.
func (r Release) WallTime() bool { return r.Since(R60) }

// tokenVersion is the version of the resume tokens.
func (r Release) tokenVersion() int32 {
	if r.Since(R70) {
		return 2
	}
	return 1
}

// Deltas reports whether updates are logged as deltas, with truncated arrays, and pipelines'
// results too (since 5.0).
func (r Release) Deltas() bool { return r.Since(R60) }

// WireVersion is the newest version of the wire protocol.
func (r Release) WireVersion() int32 {
	return map[Release]int32{R44: 9, R60: 17, R70: 21, R80: 25, R90: 28}[r]
}
