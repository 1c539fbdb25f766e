package oplog

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// Op is a change on its way into the log.
type Op struct {
	Kind Kind
	NS   *Namespace
	To   *Namespace
	// ID is the _id of the document that changed; Doc is the whole document of an insert or a replace.
	ID  bsoncore.Value
	Doc bsoncore.Document
	// Updated, Removed and Truncated describe an update. Truncated is an array, nil on releases that have none.
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
func (op *Op) detail() *detail {
	if op.To == nil && op.Session == nil && op.Object == nil && op.Before == nil && op.After == nil && op.Disambiguated == nil {
		return nil
	}
	return &detail{
		to: op.To, session: op.Session, stmt: op.Stmt, object: op.Object, description: op.Description,
		stateBefore: op.StateBefore, before: op.Before, after: op.After, disambiguated: op.Disambiguated,
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
		dst = bsoncore.AppendInt64Element(dst, "txnNumber", d.session.TxnNumber)
		dst = bsoncore.AppendDocumentElement(dst, "lsid", d.session.LSID)
	}
	if op.To != nil {
		dst = appendNamespace(dst, "to", op.To)
	}
	dst = bsoncore.AppendHeader(dst, bsoncore.TypeEmbeddedDocument, "_id")
	dst = x.tokens.append(dst, x.token(e, op))
	dst = bsoncore.AppendStringElement(dst, "operationType", e.kind.String())
	dst = bsoncore.AppendTimestampElement(dst, "clusterTime", uint32(e.TS>>32), uint32(e.TS))
	if x.release.WallTime() {
		dst = bsoncore.AppendDateTimeElement(dst, "wallTime", e.wall)
	}
	if op.Kind == Insert || op.Kind == Replace {
		dst = bsoncore.AppendDocumentElement(dst, "fullDocument", op.Doc)
	}
	dst = appendNamespace(dst, "ns", e.ns)
	if e.kind.crud() {
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
		TS: e.TS, Version: x.release.tokenVersion(), Type: TokenEvent, TxnOpIndex: e.txnIndex(), Fragment: NoFragment,
	}
	if e.kind != DropDatabase {
		t.UUID = e.ns.UUID
	}
	if t.Version >= 2 {
		t.Identifier = identifier(e.kind, op.ID, op.Description)
	} else if e.kind.crud() {
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
