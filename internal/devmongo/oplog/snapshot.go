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
	b.Timestamp("ts", e.TS).Int64("wall", e.Wall).Int32("kind", int32(e.Kind))
	e.NS.encode(b, "ns")
	raw(b, "event", e.Event)
	d := e.Detail
	if d == nil {
		return
	}
	b.Open("detail")
	d.To.encode(b, "to")
	if s := d.Session; s != nil && (d.Txn == nil || d.Index == 0) {
		b.Open("session").Doc("lsid", s.LSID).Int64("number", s.TxnNumber).End()
	}
	b.Int32("stmt", d.Stmt).Int32("index", d.Index).Bool("inTxn", d.Txn != nil)
	if d.Txn != nil && d.Index == 0 {
		b.Open("txn").Int32("count", d.Txn.Count).OpenArray("parts")
		for i, p := range d.Txn.Parts {
			b.Open(doc.Index(i)).Timestamp("ts", p.TS).Int32("end", p.End).End()
		}
		b.End().End()
	}
	raw(b, "object", d.Object)
	raw(b, "description", d.Description)
	raw(b, "stateBefore", d.StateBefore)
	raw(b, "before", d.Before)
	raw(b, "after", d.After)
	raw(b, "disambiguated", d.Disambiguated)
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
	txn     *Txn
}

// Decode reads one entry.
func (x *Decoder) Decode(d bsoncore.Document) (Entry, error) {
	ts, ok := doc.Field(d, "ts")
	kind, _ := integer(d, "kind")
	wall, _ := integer(d, "wall")
	if !ok || kind < 0 || kind > int64(Modify) {
		return Entry{}, errors.New("malformed oplog entry in the snapshot")
	}
	e := Entry{TS: query.Timestamp(ts), Wall: wall, Kind: Kind(kind), NS: x.Namespace(d, "ns"), Event: unraw(d, "event")}
	if detail, ok := doc.Field(d, "detail"); ok {
		e.Detail = x.detail(detail.Data)
	}
	if e.Kind != Noop && e.NS == nil || e.Kind.Classic() && e.Event == nil {
		return Entry{}, errors.New("incomplete oplog entry in the snapshot")
	}
	return e, nil
}

func (x *Decoder) detail(d bsoncore.Document) *Detail {
	stmt, _ := integer(d, "stmt")
	index, _ := integer(d, "index")
	out := &Detail{
		To: x.Namespace(d, "to"), Stmt: int32(stmt), Index: int32(index), Object: unraw(d, "object"), Description: unraw(d, "description"),
		StateBefore: unraw(d, "stateBefore"), Before: unraw(d, "before"), After: unraw(d, "after"), Disambiguated: unraw(d, "disambiguated"),
	}
	if s, ok := doc.Field(d, "session"); ok {
		lsid, _ := doc.Field(s.Data, "lsid")
		number, _ := integer(s.Data, "number")
		x.session = &Session{LSID: doc.Clone(lsid.Data), TxnNumber: number}
		out.Session = x.session
	}
	if in, _ := doc.Field(d, "inTxn"); !doc.Truth(in) {
		return out
	}
	if t, ok := doc.Field(d, "txn"); ok {
		x.txn = decodeTxn(t.Data)
	}
	out.Session, out.Txn = x.session, x.txn
	return out
}

func decodeTxn(d bsoncore.Document) *Txn {
	count, _ := integer(d, "count")
	t := &Txn{Count: int32(count)}
	parts, _ := doc.Field(d, "parts")
	for v := range doc.Values(parts.Data) {
		ts, _ := doc.Field(v.Data, "ts")
		end, _ := integer(v.Data, "end")
		t.Parts = append(t.Parts, Part{TS: query.Timestamp(ts), End: int32(end)})
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
