package change

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An Op is an operation type.
type Op uint8

// The operations. OpOther is every type that this version does not know by name (create, modify,
// shardCollection, …); like the collection-level ones it has no document key and concerns every
// partition.
const (
	// The operations. OpOther is any type without a constant here (create, modify, shardCollection,
	// …). Like the collection-level ones it has no document key and concerns every partition.
	OpOther Op = iota
	OpInsert
	OpUpdate
	OpReplace
	OpDelete
	OpDrop
	OpRename
	OpDropDatabase
	OpInvalidate
	// OpSkipped is not from MongoDB: the place of an event that MongoDB could not deliver because
	// it is too large.
	OpSkipped
	// OpSnapshot is not from MongoDB: a document read by a snapshot.
	OpSnapshot
)

// SkippedName and SnapshotName are the operationTypes of OpSkipped and OpSnapshot.
const (
	SkippedName  = "streamer:skipped"
	SnapshotName = "snapshot"
)

var opNames = [...]string{"other", "insert", "update", "replace", "delete", "drop", "rename", "dropDatabase", "invalidate", SkippedName, SnapshotName} //nolint:gochecknoglobals // a constant table

// String returns MongoDB's name of the operation.
func (o Op) String() string { return opNames[o] }

// ParseOp returns the operation with a name.
func ParseOp(name string) (Op, bool) {
	for i, n := range opNames[1:] {
		if n == name {
			return Op(i + 1), true
		}
	}
	return OpOther, false
}

func opOf(name []byte) Op {
	switch string(name) {
	case "insert":
		return OpInsert
	case "update":
		return OpUpdate
	case "replace":
		return OpReplace
	case "delete":
		return OpDelete
	case "drop":
		return OpDrop
	case "rename":
		return OpRename
	case "dropDatabase":
		return OpDropDatabase
	case "invalidate":
		return OpInvalidate
	case SkippedName:
		return OpSkipped
	case SnapshotName:
		return OpSnapshot
	}
	return OpOther
}

// ErrEvent says that a change event is not BSON or has no resume token. It is wrapped with the
// cause.
var ErrEvent = errors.New("unreadable change event")

// An Event is a change as MongoDB sent it, with the offsets of the fields that routing needs. It
// aliases its reply and is read-only. (MongoDB manual, "Change Events".)
type Event struct {
	raw []byte
	// Offsets of values in raw, 0 if absent, because every value is after the first four bytes.
	token, op, db, coll, toDB, toColl, key, id, lsid uint32

	idType byte
	kind   Op
	hasTxn bool

	time Timestamp
	txn  int64
}

// Parse finds the fields of a change event in one pass and decodes nothing. The first of duplicate
// fields counts. The event aliases raw.
func Parse(raw []byte) (Event, error) {
	doc, err := documentAt(raw)
	if err != nil || len(doc) != len(raw) {
		return Event{}, fmt.Errorf("%w: %w", ErrEvent, errMalformed)
	}
	e := Event{raw: raw}
	for at := 4; ; {
		name, v, next, err := element(raw, at)
		if err != nil {
			return Event{}, fmt.Errorf("%w: %w", ErrEvent, err)
		}
		if name == nil {
			break
		}
		e.note(name, v, uint32(next-len(v.Data)))
		at = next
	}
	if e.token == 0 {
		return Event{}, fmt.Errorf("%w: no resume token in _id", ErrEvent)
	}
	if e.time.IsZero() {
		// Old servers leave clusterTime out of some events; the token has it too.
		if p, err := ParseToken(e.Token()); err == nil {
			e.time = p.Time
		}
	}
	return e, nil
}

// note records the offset of a top-level field that routing needs.
func (e *Event) note(name []byte, v Value, at uint32) {
	switch string(name) {
	case "_id":
		if v.Type == TypeDocument && e.token == 0 {
			e.token = at
		}
	case "operationType":
		if v.Type == TypeString && e.op == 0 {
			e.op = at
			e.kind = opOf(v.Text())
		}
	case "clusterTime":
		if v.Type == TypeTimestamp && e.time.IsZero() {
			e.time = Timestamp{T: binary.LittleEndian.Uint32(v.Data[4:]), I: binary.LittleEndian.Uint32(v.Data)}
		}
	case "ns":
		if v.Type == TypeDocument && e.db == 0 {
			e.db, e.coll = noteNamespace(v, at)
		}
	case "to":
		if v.Type == TypeDocument && e.toDB == 0 {
			e.toDB, e.toColl = noteNamespace(v, at)
		}
	case "documentKey":
		if v.Type == TypeDocument && e.key == 0 {
			e.key = at
			e.noteID(v, at)
		}
	case "lsid":
		if v.Type == TypeDocument && e.lsid == 0 {
			e.lsid = at
		}
	case "txnNumber":
		if v.Type == TypeInt64 && !e.hasTxn {
			e.txn = int64(binary.LittleEndian.Uint64(v.Data))
			e.hasTxn = true
		}
	}
}

// noteID finds _id in the document key. A key without one, which no known server sends, counts as
// the _id itself.
func (e *Event) noteID(key Value, at uint32) {
	e.id = at
	e.idType = key.Type
	for in := 4; ; {
		name, v, next, err := element(key.Data, in)
		if err != nil || name == nil {
			return
		}
		if string(name) == "_id" {
			e.id = at + uint32(next-len(v.Data))
			e.idType = v.Type
			return
		}
		in = next
	}
}

// noteNamespace finds db and coll in a namespace document at an offset.
func noteNamespace(ns Value, at uint32) (db, coll uint32) {
	for in := 4; ; {
		name, v, next, err := element(ns.Data, in)
		if err != nil || name == nil {
			return db, coll
		}
		if v.Type == TypeString {
			place := at + uint32(next-len(v.Data))
			switch {
			case string(name) == "db" && db == 0:
				db = place
			case string(name) == "coll" && coll == 0:
				coll = place
			}
		}
		in = next
	}
}

// Over returns the same event over a copy of its bytes, so that it can outlive its reply.
func (e *Event) Over(raw []byte) Event {
	moved := *e
	moved.raw = raw
	return moved
}

// Raw returns the whole event as BSON.
func (e *Event) Raw() []byte { return e.raw }

// Token returns the resume token, a BSON document that contains the document's key.
func (e *Event) Token() []byte { return e.document(e.token) }

// Position returns the position of the event in the log. It aliases the event.
func (e *Event) Position() Position { return Position{Token: e.Token(), Time: e.time} }

// Op returns the operation.
func (e *Event) Op() Op { return e.kind }

// OpName returns MongoDB's name of the operation, also for OpOther.
func (e *Event) OpName() []byte { return e.text(e.op) }

// DB and Coll return the namespace; Coll is empty for a whole database.
func (e *Event) DB() []byte   { return e.text(e.db) }
func (e *Event) Coll() []byte { return e.text(e.coll) } //nolint:revive // see DB

// Namespace returns the namespace.
func (e *Event) Namespace() Namespace { return Namespace{DB: string(e.DB()), Coll: string(e.Coll())} }

// ToDB and ToColl return the target namespace of a rename, empty otherwise.
func (e *Event) ToDB() []byte   { return e.text(e.toDB) }
func (e *Event) ToColl() []byte { return e.text(e.toColl) } //nolint:revive // see ToDB

// Key returns the document key (the _id and, on sharded collections, the shard key), nil for an
// event without a document.
func (e *Event) Key() []byte {
	if e.key == 0 {
		return nil
	}
	return e.document(e.key)
}

// ID returns the document's _id, the zero Value for an event without a document.
func (e *Event) ID() Value {
	if e.key == 0 {
		return Value{}
	}
	size, err := valueSize(e.idType, e.raw[e.id:])
	if err != nil {
		return Value{}
	}
	return Value{Type: e.idType, Data: e.raw[e.id : e.id+uint32(size)]}
}

// Time returns the cluster time.
func (e *Event) Time() Timestamp { return e.time }

// Transaction returns the session (lsid, a BSON document) and the number of the event's
// transaction.
func (e *Event) Transaction() (lsid []byte, number int64, ok bool) {
	if !e.hasTxn || e.lsid == 0 {
		return nil, 0, false
	}
	return e.document(e.lsid), e.txn, true
}

// Lookup returns the value of a top-level field, or the zero Value.
func (e *Event) Lookup(name string) Value { return lookup(e.raw, name) }

func (e *Event) document(at uint32) []byte {
	n := binary.LittleEndian.Uint32(e.raw[at:])
	return e.raw[at : at+n : at+n]
}

func (e *Event) text(at uint32) []byte {
	if at == 0 {
		return nil
	}
	n := binary.LittleEndian.Uint32(e.raw[at:])
	return e.raw[at+4 : at+4+n-1]
}
