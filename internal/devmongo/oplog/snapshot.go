package oplog

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// Entries copies the whole log, oldest entry first.
func (l *Log) Entries() []Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Entry, 0, l.next-l.first)
	for seq := l.first; seq < l.next; seq++ {
		out = append(out, *l.at(seq))
	}
	return out
}

// Restore makes a log of entries that another had, whose newest cluster time was clusterTime.
func Restore(c Config, entries []Entry, clusterTime uint64) (*Log, error) {
	if len(entries) == 0 {
		return nil, errors.New("oplog without entries")
	}
	l := empty(c)
	l.clock.last.Store(max(clusterTime, entries[len(entries)-1].TS))
	l.push(entries...)
	l.Flush()
	return l, nil
}

// Encode appends what Decoder reads back.
func (e *Entry) Encode(b *doc.Builder) {
	b.Timestamp("ts", e.TS).Int64("wall", e.wall).Int32("kind", int32(e.kind))
	e.ns.encode(b, "ns")
	raw(b, "event", e.Event)
	d := e.Detail
	if d == nil {
		return
	}
	b.Open("detail")
	d.to.encode(b, "to")
	if s := d.session; s != nil && (d.Txn == nil || d.index == 0) {
		b.Open("session").Doc("lsid", s.LSID).Int64("number", s.TxnNumber).End()
	}
	b.Int32("stmt", d.stmt).Int32("index", d.index).Bool("inTxn", d.Txn != nil)
	if d.Txn != nil && d.index == 0 {
		b.Open("txn").Int32("count", d.Txn.count).OpenArray("parts")
		for i, p := range d.Txn.parts {
			b.Open(doc.Index(i)).Timestamp("ts", p.ts).Int32("end", p.end).End()
		}
		b.End().End()
	}
	raw(b, "object", d.object)
	raw(b, "description", d.description)
	raw(b, "stateBefore", d.stateBefore)
	raw(b, "before", d.before)
	raw(b, "after", d.after)
	raw(b, "disambiguated", d.disambiguated)
	b.End()
}

// raw keeps a document as binary data: it may be larger than what an embedded document may be.
func raw(b *doc.Builder, name string, d bsoncore.Document) {
	if d != nil {
		b.Binary(name, 0, d)
	}
}

func (n *Namespace) encode(b *doc.Builder, name string) {
	if n == nil {
		return
	}
	b.Open(name).String("db", n.DB).String("coll", n.Coll)
	if n.UUID != nil {
		b.Binary("uuid", 4, n.UUID[:])
	}
	b.End()
}

// Decoder reads entries in their order. Namespaces that are the same become one.
type Decoder struct {
	known   map[string]*Namespace
	session *Session
	txn     *txn
}

// Decode reads one entry.
func (x *Decoder) Decode(d bsoncore.Document) (Entry, error) {
	ts, ok := doc.Field(d, "ts")
	kind, _ := integer(d, "kind")
	wall, _ := integer(d, "wall")
	if !ok || kind < 0 || kind > int64(Modify) {
		return Entry{}, errors.New("malformed oplog entry in the snapshot")
	}
	e := Entry{TS: query.Timestamp(ts), wall: wall, kind: Kind(kind), ns: x.Namespace(d, "ns"), Event: unraw(d, "event")}
	if detail, ok := doc.Field(d, "detail"); ok {
		e.Detail = x.detail(detail.Data)
	}
	if e.kind != noop && e.ns == nil || e.kind.classic() && e.Event == nil {
		return Entry{}, errors.New("incomplete oplog entry in the snapshot")
	}
	return e, nil
}

func (x *Decoder) detail(d bsoncore.Document) *detail {
	stmt, _ := integer(d, "stmt")
	index, _ := integer(d, "index")
	out := &detail{
		to: x.Namespace(d, "to"), stmt: int32(stmt), index: int32(index), object: unraw(d, "object"), description: unraw(d, "description"),
		stateBefore: unraw(d, "stateBefore"), before: unraw(d, "before"), after: unraw(d, "after"), disambiguated: unraw(d, "disambiguated"),
	}
	if s, ok := doc.Field(d, "session"); ok {
		lsid, _ := doc.Field(s.Data, "lsid")
		number, _ := integer(s.Data, "number")
		x.session = &Session{LSID: doc.Clone(lsid.Data), TxnNumber: number}
		out.session = x.session
	}
	if in, _ := doc.Field(d, "inTxn"); !doc.Truth(in) {
		return out
	}
	if t, ok := doc.Field(d, "txn"); ok {
		x.txn = decodeTxn(t.Data)
	}
	out.session, out.Txn = x.session, x.txn
	return out
}

func decodeTxn(d bsoncore.Document) *txn {
	count, _ := integer(d, "count")
	t := &txn{count: int32(count)}
	parts, _ := doc.Field(d, "parts")
	for v := range doc.Values(parts.Data) {
		ts, _ := doc.Field(v.Data, "ts")
		end, _ := integer(v.Data, "end")
		t.parts = append(t.parts, part{ts: query.Timestamp(ts), end: int32(end)})
	}
	return t
}

// Namespace reads a namespace, nil when it is missing.
func (x *Decoder) Namespace(d bsoncore.Document, name string) *Namespace {
	v, ok := doc.Field(d, name)
	if !ok {
		return nil
	}
	if n := x.known[string(v.Data)]; n != nil {
		return n
	}
	db, _ := doc.Field(v.Data, "db")
	coll, _ := doc.Field(v.Data, "coll")
	n := &Namespace{}
	n.DB, _ = db.StringValueOK()
	n.Coll, _ = coll.StringValueOK()
	if id, ok := doc.Field(v.Data, "uuid"); ok {
		if _, data, ok := id.BinaryOK(); ok && len(data) == 16 {
			u := [16]byte(data)
			n.UUID = &u
		}
	}
	if x.known == nil {
		x.known = map[string]*Namespace{}
	}
	x.known[string(v.Data)] = n
	return n
}

func integer(d bsoncore.Document, name string) (int64, bool) {
	v, ok := doc.Field(d, name)
	if !ok {
		return 0, false
	}
	return doc.Int(v)
}

func unraw(d bsoncore.Document, name string) bsoncore.Document {
	v, ok := doc.Field(d, name)
	if !ok {
		return nil
	}
	_, data, _ := v.BinaryOK()
	return doc.Clone(data)
}
