package changetest

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/mongostream/streamer/change"
)

// An Event describes a change event to build. The _id of its document is an int64.
type Event struct {
	Op       string // MongoDB's operationType; defaults to insert
	DB, Coll string // default to "shop" and "orders"
	ID       int64
	Time     change.Timestamp
	Index    uint64 // index in its transaction
	Txn      int64  // number of its transaction, 0 for none
	Keyless  bool   // an event without a document
	To       string // the target collection of a rename, in the same database
	Pad      int    // size of a string field in bytes
	Noise    bool   // the string field does not compress
	// Version is that of the token, 1 or 2; defaults to 1. Fragment numbers the fragment that a
	// token of version 2 names, from 1; 0 is none.
	Version, Fragment int
	// Value is the field v of the document, Base its field b; 0 omits them. An update sets v and
	// carries the document only with Whole.
	Value, Base int64
	Whole       bool
	Untold      bool // an update without updateDescription
}

// Bytes returns the event as BSON, in MongoDB's field order.
func (e Event) Bytes() []byte {
	op, db, coll := or(e.Op, "insert"), or(e.DB, "shop"), or(e.Coll, "orders")
	var b []byte
	b = change.AppendDocument(b, "_id", Token(e))
	b = change.AppendString(b, "operationType", op)
	b = change.AppendTimestamp(b, "clusterTime", e.Time.T, e.Time.I)
	id := change.AppendInt64(nil, "_id", e.ID)
	if op == "insert" || op == "replace" || e.Whole {
		b = change.AppendDocument(b, "fullDocument", e.Document())
	}
	b = change.AppendDocument(b, "ns", change.WrapDocument(change.AppendString(change.AppendString(nil, "db", db), "coll", coll)))
	if e.To != "" {
		b = change.AppendDocument(b, "to", change.WrapDocument(change.AppendString(change.AppendString(nil, "db", db), "coll", e.To)))
	}
	if !e.Keyless {
		b = change.AppendDocument(b, "documentKey", change.WrapDocument(id))
	}
	if e.Txn != 0 {
		b = change.AppendDocument(b, "lsid", change.WrapDocument(change.AppendInt64(nil, "id", 1)))
		b = change.AppendInt64(b, "txnNumber", e.Txn)
	}
	if op == "update" && !e.Untold {
		b = change.AppendDocument(b, "updateDescription", change.WrapDocument(change.AppendDocument(nil, "updatedFields", change.WrapDocument(change.AppendInt64(nil, "v", e.Value)))))
	}
	return change.WrapDocument(b)
}

// Document returns the document after the event.
func (e Event) Document() []byte {
	b := change.AppendInt64(nil, "_id", e.ID)
	if e.Value != 0 {
		b = change.AppendInt64(b, "v", e.Value)
	}
	if e.Base != 0 {
		b = change.AppendInt64(b, "b", e.Base)
	}
	if e.Pad > 0 {
		b = change.AppendString(b, "pad", e.pad())
	}
	return change.WrapDocument(b)
}

// pad returns the string field.
func (e Event) pad() string {
	if !e.Noise {
		return strings.Repeat("x", e.Pad)
	}
	noise := make([]byte, e.Pad)
	_, _ = rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), uint64(e.ID)))).Read(noise) // never fails
	return hex.EncodeToString(noise)[:e.Pad]
}

// Position returns the position of the event.
func (e Event) Position() change.Position {
	return change.Position{Token: Token(e), Time: e.Time}
}

// Token returns the event's resume token: a KeyString with the document's key, as a server of the
// version makes it.
func Token(e Event) []byte {
	version := max(e.Version, 1)
	b := append(head(e.Time), 0x2B, byte(version<<1), 0x2C, 0x01, 0x00) // an event
	b = appendKeyInt(b, e.Index)
	b = append(b, 0x6E, 0x5A, 0x10, 0x04) // not from an invalidate, the collection's UUID
	b = append(b, make([]byte, 16)...)
	key := append(appendKeyInt([]byte{0x46, 0x1E, '_', 'i', 'd', 0}, uint64(e.ID)), 0)
	if version == 1 { // an event without a document has a key too, so that it has a place among others with its head
		return token(append(append(b, key...), 4))
	}
	b = append(append(b, "\x46\x3CoperationType\x00\x3C"...), or(e.Op, "insert")...)
	b = append(b, 0)
	if !e.Keyless {
		b = append(append(b, "\x46documentKey\x00"...), key...)
	}
	b = append(b, 0)
	if e.Fragment > 0 {
		b = appendKeyInt(b, uint64(e.Fragment-1))
	}
	return token(append(b, 4))
}

// HighWater returns the high-watermark token of a time, as MongoDB sends it with batches.
func HighWater(t change.Timestamp) change.Position {
	b := append(head(t), 0x2B, 0x02, 0x29, 0x29, 0x6E, 0x04)
	return change.Position{Token: token(b), Time: t}
}

func head(t change.Timestamp) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0x82}, t.T)
	return binary.BigEndian.AppendUint32(b, t.I)
}

func token(key []byte) []byte {
	return change.WrapDocument(change.AppendString(nil, "_data", strings.ToUpper(hex.EncodeToString(key))))
}

// appendKeyInt appends a KeyString integer.
func appendKeyInt(b []byte, n uint64) []byte {
	if n == 0 {
		return append(b, 0x29)
	}
	n <<= 1
	size := 1
	for m := n; m > 0xFF; m >>= 8 {
		size++
	}
	b = append(b, byte(0x2B+size-1))
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
