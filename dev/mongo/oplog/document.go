package oplog

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
)

// term is the election term of all entries: there is one primary, for ever.
const term = 1

// Documents returns the documents of local.oplog.rs for the entry at seq, and the number of the
// next entry: one document for most entries, one or more for a transaction, whose entries go
// together. There are none at the end; ok is false when the entry is no longer in the log.
func (l *Log) Documents(seq uint64) (docs []bsoncore.Document, next uint64, ok bool) {
	entries, ok := l.Read(seq, true)
	if !ok || len(entries) == 0 {
		return nil, seq, ok
	}
	if d := entries[0].Detail; d == nil || d.Txn == nil {
		return []bsoncore.Document{l.document(&entries[0])}, seq + 1, true
	}
	txn := entries[0].Detail.Txn
	seq -= uint64(entries[0].Detail.Index)
	next = seq + uint64(txn.Count)
	all := make([]Entry, 0, txn.Count)
	for at := seq; at < next; {
		chunk, ok := l.Read(at, true)
		if !ok || len(chunk) == 0 {
			return nil, next, false
		}
		all = append(all, chunk...)
		at += uint64(len(chunk))
	}
	return l.transaction(txn, all[:txn.Count]), next, true
}

// Back is the number of the entry, or of the first entry of the transaction, that comes before seq.
func (l *Log) Back(seq uint64) (uint64, bool) {
	e, ok := l.before(seq)
	if !ok {
		return 0, false
	}
	if e.Detail != nil && e.Detail.Txn != nil {
		return seq - 1 - uint64(e.Detail.Index), true
	}
	return seq - 1, true
}

func (l *Log) document(e *Entry) bsoncore.Document {
	b := doc.New()
	d := e.detail()
	if d.Session != nil {
		b.Doc("lsid", d.Session.LSID).Int64("txnNumber", d.Session.TxnNumber)
	}
	l.operation(b, e)
	tail(b, e.TS, e.Wall)
	if d.Session != nil {
		b.Int32("stmtId", d.Stmt)
		prevOpTime(b, 0)
	}
	return b.Document()
}

func tail(b *doc.Builder, ts uint64, wall int64) {
	b.Timestamp("ts", ts).Int64("t", term).Date("wall", wall).Int64("v", 2)
}

func prevOpTime(b *doc.Builder, ts uint64) {
	t := int64(term)
	if ts == 0 {
		t = -1
	}
	b.Open("prevOpTime").Timestamp("ts", ts).Int64("t", t).End()
}

// operation appends the fields that a single entry and an operation in a transaction share.
func (l *Log) operation(b *doc.Builder, e *Entry) {
	b.String("op", e.Kind.op())
	switch {
	case e.Kind == noop:
		b.String("ns", "").Doc("o", e.detail().Object)
		return
	case e.Kind.crud():
		b.String("ns", e.NS.String())
	default:
		b.String("ns", e.NS.DB+".$cmd")
	}
	if e.NS.UUID != nil {
		b.Binary("ui", 4, e.NS.UUID[:])
	}
	key, _ := doc.Field(e.Event, "documentKey")
	switch e.Kind {
	case Insert:
		full, _ := doc.Field(e.Event, "fullDocument")
		b.Value("o", full)
		if l.config.Release.Deltas() {
			b.Value("o2", key)
		}
	case Replace:
		full, _ := doc.Field(e.Event, "fullDocument")
		b.Value("o", full).Value("o2", key)
	case Delete:
		b.Value("o", key)
	case Update:
		l.update(b, e)
		b.Value("o2", key)
	default:
		b.Doc("o", e.detail().Object)
	}
}

// update appends o of an update: $set and $unset, or since 5.0 a delta.
func (l *Log) update(b *doc.Builder, e *Entry) {
	description, _ := doc.Field(e.Event, "updateDescription")
	set, _ := doc.Field(description.Data, "updatedFields")
	removed, _ := doc.Field(description.Data, "removedFields")
	b.Open("o")
	defer b.End()
	if l.config.Release.Deltas() {
		truncated, _ := doc.Field(description.Data, "truncatedArrays")
		b.Int32("$v", 2).Doc("diff", buildDelta(set.Data, removed.Data, truncated.Data))
		return
	}
	b.Int32("$v", 1)
	if !doc.Empty(set.Data) {
		b.Value("$set", set)
	}
	if !doc.Empty(removed.Data) {
		b.Open("$unset")
		for v := range doc.Values(removed.Data) {
			b.Bool(v.StringValue(), true)
		}
		b.End()
	}
}

func (l *Log) transaction(txn *Txn, entries []Entry) []bsoncore.Document {
	var docs []bsoncore.Document
	from := int32(0)
	previous := uint64(0)
	for i, part := range txn.Parts {
		last := i == len(txn.Parts)-1
		b := doc.New().Doc("lsid", entries[0].Detail.Session.LSID).Int64("txnNumber", entries[0].Detail.Session.TxnNumber)
		b.String("op", "c").String("ns", "admin.$cmd").Open("o").OpenArray("applyOps")
		for j := from; j < part.End; j++ {
			b.Open(doc.Index(int(j - from)))
			l.operation(b, &entries[j])
			b.End()
		}
		b.End()
		switch {
		case !last:
			b.Bool("partialTxn", true)
		case i > 0:
			b.Int64("count", int64(txn.Count))
		}
		b.End()
		tail(b, part.TS, entries[0].Wall)
		prevOpTime(b, previous)
		docs = append(docs, b.Document())
		from, previous = part.End, part.TS
	}
	return docs
}

// buildDelta makes the diff of a $v: 2 update from dotted paths. Names made of digits count as
// array indexes, which they nearly always are.
func buildDelta(set, removed, truncated []byte) bsoncore.Document {
	root := &deltaBranch{}
	for path, v := range doc.All(set) {
		root.at(path).updates = append(root.at(path).updates, deltaField{leaf(path), v})
	}
	for v := range doc.Values(removed) {
		path := v.StringValue()
		b := root.at(path)
		b.deletes = append(b.deletes, leaf(path))
	}
	for v := range doc.Values(truncated) {
		field, _ := doc.Field(v.Data, "field")
		size, _ := doc.Field(v.Data, "newSize")
		b := root.at(field.StringValue() + ".0")
		b.size = size.Int32()
		b.array = true
		b.truncated = true
	}
	return root.document()
}

type deltaField struct {
	name  string
	value bsoncore.Value
}

// deltaBranch is one level of a delta.
type deltaBranch struct {
	name      string
	array     bool
	truncated bool
	size      int32
	updates   []deltaField
	deletes   []string
	kids      []*deltaBranch
}

func leaf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// at is the branch that holds the last name of the path.
func (b *deltaBranch) at(path string) *deltaBranch {
	for {
		name, rest, more := strings.Cut(path, ".")
		if strings.Trim(name, "0123456789") == "" {
			b.array = true
		}
		if !more {
			return b
		}
		b = b.kid(name)
		path = rest
	}
}

func (b *deltaBranch) kid(name string) *deltaBranch {
	for _, k := range b.kids {
		if k.name == name {
			return k
		}
	}
	k := &deltaBranch{name: name}
	b.kids = append(b.kids, k)
	return k
}

func (b *deltaBranch) document() bsoncore.Document {
	out := doc.New()
	if b.array {
		out.Bool("a", true)
		if b.truncated {
			out.Int32("l", b.size)
		}
		for _, u := range b.updates {
			out.Value("u"+u.name, u.value)
		}
	} else {
		if len(b.deletes) > 0 {
			out.Open("d")
			for _, name := range b.deletes {
				out.Bool(name, false)
			}
			out.End()
		}
		if len(b.updates) > 0 {
			out.Open("u")
			for _, u := range b.updates {
				out.Value(u.name, u.value)
			}
			out.End()
		}
	}
	for _, k := range b.kids {
		out.Doc("s"+k.name, k.document())
	}
	return out.Document()
}
