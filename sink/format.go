package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/delivery"
)

// A Format is the encoding of a change.
type Format string

// The formats.
const (
	Relaxed     Format = "relaxed"     // the change event as relaxed Extended JSON
	Canonical   Format = "canonical"   // the same as canonical Extended JSON
	BSON        Format = "bson"        // the change event as BSON, without its resume token
	Debezium    Format = "debezium"    // the envelope of Debezium's MongoDB connector
	CloudEvents Format = "cloudevents" // CloudEvents 1.0, structured, with the change event as data
)

// Formats returns all formats.
func Formats() []Format { return []Format{Relaxed, Canonical, BSON, Debezium, CloudEvents} }

// MediaType returns the media type of a format's values.
func (f Format) MediaType() string {
	switch f {
	case BSON:
		return "application/bson"
	case CloudEvents:
		return "application/cloudevents+json"
	default:
		return "application/json"
	}
}

// An encoder makes messages. It is used by one goroutine.
type encoder struct {
	cluster, name string
	format        Format
	json          extjson.Options
	names         map[string]string // recurring texts
	scratch, key  []byte
	page          *page           // of the last message
	full          []*page         // before it, since the beginning of the batch
	spare         sync.Pool       // of *page
	ids           strings.Builder // of the batch
}

// A page is the memory of some messages, which batches share, so that little of it stays unused.
// Those of batches that are over are used again: most of a sink's garbage would be messages.
type page struct {
	messages []Message
	text     []byte // of their keys and values
}

// The size of a page. Values that do not fit into one are their message's alone.
const pageMessages, pageBytes = 128, 64 << 10

// room returns the next message, whose text is expected to have so many bytes.
func (e *encoder) room(size int) *Message {
	if p := e.page; p != nil && (len(p.messages) == pageMessages || size <= pageBytes && len(p.text)+size > cap(p.text)) {
		e.full = append(e.full, p)
		e.page = nil
	}
	if e.page == nil {
		var is bool
		if e.page, is = e.spare.Get().(*page); !is {
			e.page = &page{make([]Message, 0, pageMessages), make([]byte, 0, pageBytes)}
		}
	}
	p := e.page
	p.messages = p.messages[:len(p.messages)+1]
	return &p.messages[len(p.messages)-1]
}

// recycle takes back the pages of a batch that is over.
func (e *encoder) recycle(pages []*page) {
	for _, p := range pages {
		clear(p.messages)
		*p = page{p.messages[:0], p.text[:0]}
		e.spare.Put(p)
	}
}

func newEncoder(cfg Config) *encoder {
	return &encoder{
		cluster: cfg.Cluster, name: cfg.Name, format: cfg.Format, names: make(map[string]string),
		json: extjson.Options{Canonical: cfg.Format == Canonical, LongText: cfg.LongText},
	}
}

// fields are the values of a change event that messages need.
type fields struct {
	op, db, coll       string
	id                 change.Value
	full, before       change.Value
	update, wall, lsid change.Value
	txn                change.Value
	time               change.Timestamp
}

// text returns bytes as a string, the same for the same bytes.
func (e *encoder) text(b []byte) string {
	if s, known := e.names[string(b)]; known {
		return s
	}
	if len(e.names) >= maxNames {
		clear(e.names)
	}
	s := string(b)
	e.names[s] = s
	return s
}

// read finds the fields of a change event.
func (e *encoder) read(doc []byte) (f fields, err error) {
	for at := 4; ; {
		name, v, next, err := change.Element(doc, at)
		if err != nil {
			return f, fmt.Errorf("read change: %w", err)
		}
		if name == nil {
			return f, nil
		}
		at = next
		switch string(name) {
		case "operationType":
			f.op = e.text(v.Text())
		case "ns":
			f.db, f.coll = e.text(v.Lookup("db").Text()), e.text(v.Lookup("coll").Text())
		case "documentKey":
			f.id = v.Lookup("_id")
		case "fullDocument":
			f.full = v
		case "fullDocumentBeforeChange":
			f.before = v
		case "updateDescription":
			f.update = v
		case "clusterTime":
			if v.Type == change.TypeTimestamp {
				f.time = change.Timestamp{T: binary.LittleEndian.Uint32(v.Data[4:]), I: binary.LittleEndian.Uint32(v.Data)}
			}
		case "wallTime":
			f.wall = v
		case "lsid":
			f.lsid = v
		case "txnNumber":
			f.txn = v
		}
	}
}

// message returns the message of a change.
func (e *encoder) message(event *delivery.Event, incarnation string, doc []byte) (*Message, error) {
	f, err := e.read(doc)
	if err != nil {
		return nil, err
	}
	size := 2*len(doc) + keySize
	m := e.room(size)
	e.scratch = event.Ref.AppendText(e.scratch[:0], e.cluster)
	e.scratch = append(append(e.scratch, '.'), incarnation...)
	if event.Snapshot { // it has the position at which it was read
		sum := sha256.Sum256(change.AppendCanonical(append([]byte(f.db+"."+f.coll), 0), f.id))
		e.scratch = hex.AppendEncode(append(e.scratch, '.'), sum[:16])
	}
	at := e.ids.Len()
	e.ids.Write(e.scratch)
	*m = Message{
		Partition: event.Partition, Ref: event.Ref, ID: e.ids.String()[at:], Op: f.op, DB: f.db, Coll: f.coll, Time: f.time, Snapshot: event.Snapshot,
		Incarnation: incarnation,
	}
	b := e.page.text
	if size > pageBytes {
		b = make([]byte, 0, size)
	}
	begun := len(b)
	if !f.id.IsZero() {
		b = extjson.AppendKey(b, f.id)
		m.Key = b[begun:len(b):len(b)]
	}
	end := len(b)
	if b, err = e.appendValue(b, m, event, &f, doc); err != nil {
		return nil, err
	}
	m.Value = b[end:len(b):len(b)]
	switch {
	case cap(b) == cap(e.page.text): // it has not outgrown the page
		e.page.text = b
	case m.Key != nil: // its place in the page is the next message's
		m.Key = b[begun:end:end]
	}
	return m, nil
}

func (e *encoder) appendValue(b []byte, m *Message, event *delivery.Event, f *fields, doc []byte) ([]byte, error) {
	switch e.format {
	case BSON:
		return append(b, doc...), nil
	case Debezium:
		return e.appendDebezium(b, m, f)
	case CloudEvents:
		b = e.appendEnvelope(b, m, f)
		b, err := e.appendEvent(b, m, event, f.id, doc)
		return append(b, '}'), err
	default:
		return e.appendEvent(b, m, event, f.id, doc)
	}
}

// appendEvent appends the event as Extended JSON, with the key of the document with that _id.
func (e *encoder) appendEvent(b []byte, m *Message, event *delivery.Event, id change.Value, doc []byte) ([]byte, error) {
	e.key = e.key[:0]
	if !id.IsZero() {
		e.key = extjson.AppendKeyText(e.key, id)
	}
	b = delivery.AppendEventHead(b, m.ID, event)
	at := len(b)
	b, err := e.json.AppendKeyed(b, e.key, doc)
	if err != nil {
		return b, fmt.Errorf("write change: %w", err)
	}
	b[at] = ',' // instead of the brace: a change has fields
	return b, nil
}

// appendEnvelope appends the attributes of a CloudEvent up to its data.
func (e *encoder) appendEnvelope(b []byte, m *Message, f *fields) []byte {
	b = append(append(b, `{"specversion":"1.0","id":`...), quoted(m.ID)...)
	b = append(append(b, `,"source":`...), quoted("/streamer/"+e.cluster+"/"+e.name)...)
	b = append(append(b, `,"type":`...), quoted("streamer."+m.Op)...)
	subject := ceText(m.Namespace())
	if subject != "" { // no attribute may be empty
		b = append(append(b, `,"subject":`...), quoted(subject)...)
	}
	b = append(b, `,"time":"`...)
	b = timeOf(f).AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `","datacontenttype":"application/json"`...)
	switch {
	case m.Key != nil:
		b = extjson.AppendString(append(b, `,"partitionkey":`...), m.Key)
	case subject != "":
		b = append(append(b, `,"partitionkey":`...), quoted(subject)...)
	}
	return append(b, `,"data":`...)
}

// ceText returns a text as an attribute of a CloudEvent, which may contain only valid Unicode
// without control characters. If it must escape others, it escapes backslashes, too.
func ceText(s string) string {
	exact := extjson.AppendExact(nil, []byte(s))
	plain := exact[1 : len(exact)-1] // without quotes
	if !bytes.Contains(plain, []byte(`\u`)) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	return string(plain)
}

// timeOf returns the commit time of a change, in milliseconds if the server reports them.
func timeOf(f *fields) time.Time {
	if f.wall.Type == change.TypeDateTime {
		return time.UnixMilli(int64(binary.LittleEndian.Uint64(f.wall.Data))).UTC()
	}
	return f.time.Time()
}

// quoted returns a text as JSON.
func quoted(s string) []byte { return extjson.AppendString(nil, []byte(s)) }

// appendJSONText appends a document as a JSON string that has its Extended JSON, null if there is
// none.
func (e *encoder) appendJSONText(b []byte, v change.Value) ([]byte, error) {
	if v.Document() == nil {
		return append(b, "null"...), nil
	}
	text, err := e.json.Append(e.scratch[:0], v.Document())
	e.scratch = text
	if err != nil {
		return b, fmt.Errorf("write change: %w", err)
	}
	return extjson.AppendString(b, text), nil
}

// appendDebezium appends the envelope of Debezium's connector for MongoDB, as its JSON converter
// writes it without schemas. Documents in it are Extended JSON in strings.
func (e *encoder) appendDebezium(b []byte, m *Message, f *fields) (_ []byte, err error) {
	op := "u"
	at := timeOf(f).UnixMilli()
	switch m.Op {
	case "insert":
		op = "c"
	case "delete":
		op = "d"
	case change.SnapshotName:
		op = "r"
	case "update", "replace":
	default: // Debezium has no such events; its consumers skip unknown operations
		op = m.Op
	}
	b = append(b, `{"before":`...)
	before := f.before
	if before.Document() == nil && op == "d" { // of a document that is gone, its _id
		before = change.Value{Type: change.TypeDocument, Data: change.WrapDocument(change.AppendElement(nil, f.id.Type, "_id", f.id.Data))}
	}
	if b, err = e.appendJSONText(b, before); err != nil {
		return b, err
	}
	b = append(b, `,"after":`...)
	if b, err = e.appendJSONText(b, f.full); err != nil {
		return b, err
	}
	b = append(b, `,"updateDescription":`...)
	if b, err = e.appendUpdate(b, f.update); err != nil {
		return b, err
	}
	if b, err = e.appendSource(append(b, `,"source":`...), m, f, at); err != nil {
		return b, err
	}
	b = append(append(b, `,"op":`...), quoted(op)...)
	now := time.Now()
	b = strconv.AppendInt(append(b, `,"ts_ms":`...), now.UnixMilli(), 10)
	b = strconv.AppendInt(append(b, `,"ts_us":`...), now.UnixMicro(), 10)
	b = strconv.AppendInt(append(b, `,"ts_ns":`...), now.UnixNano(), 10)
	return append(b, `,"transaction":null}`...), nil
}

// appendSource appends the object in which Debezium says where a change, of a time in milliseconds,
// comes from.
func (e *encoder) appendSource(b []byte, m *Message, f *fields, at int64) (_ []byte, err error) {
	b = append(append(b, `{"version":"streamer","connector":"mongodb","name":`...), quoted(e.cluster)...)
	b = strconv.AppendInt(append(b, `,"ts_ms":`...), at, 10)
	b = append(b, `,"snapshot":"`...)
	b = strconv.AppendBool(b, m.Snapshot)
	b = append(append(b, `","db":`...), quoted(m.DB)...)
	b = strconv.AppendInt(append(b, `,"sequence":null,"ts_us":`...), at*1000, 10)
	b = strconv.AppendInt(append(b, `,"ts_ns":`...), at*1_000_000, 10)
	b = append(append(b, `,"collection":`...), quoted(m.Coll)...)
	b = strconv.AppendUint(append(b, `,"ord":`...), uint64(f.time.I), 10)
	b = append(b, `,"lsid":`...)
	if b, err = e.appendJSONText(b, f.lsid); err != nil {
		return b, err
	}
	b = append(b, `,"txnNumber":`...)
	if n, ok := f.txn.Int64(); ok {
		b = strconv.AppendInt(b, n, 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"wallTime":`...)
	if f.wall.Type == change.TypeDateTime {
		b = strconv.AppendInt(b, at, 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(append(b, `,"streamer_id":`...), quoted(m.ID)...)
	if m.Key != nil { // targets without keys have the document here
		b = extjson.AppendString(append(b, `,"streamer_key":`...), m.Key)
	}
	return append(b, '}'), nil
}

// DebeziumKey returns the key of Debezium's messages for a document's key. A topic of several
// collections needs the namespace, too: Debezium's router adds it in the same way.
func DebeziumKey(key, namespace []byte) []byte {
	b := extjson.AppendString([]byte(`{"id":`), key)
	if namespace != nil {
		b = extjson.AppendString(append(b, `,"__dbz__physicalTableIdentifier":`...), namespace)
	}
	return append(b, '}')
}

// appendUpdate appends the description of an update, null for other operations.
func (e *encoder) appendUpdate(b []byte, update change.Value) (_ []byte, err error) {
	if update.Document() == nil {
		return append(b, "null"...), nil
	}
	b = append(b, `{"removedFields":`...)
	if removed := update.Lookup("removedFields"); removed.Type == change.TypeArray && len(removed.Data) > 5 {
		if b, err = e.json.AppendValue(b, removed); err != nil {
			return b, err
		}
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"updatedFields":`...)
	if b, err = e.appendJSONText(b, update.Lookup("updatedFields")); err != nil {
		return b, err
	}
	b = append(b, `,"truncatedArrays":`...)
	b, err = appendTruncated(b, update.Lookup("truncatedArrays"))
	return append(b, '}'), err
}

// appendTruncated appends the arrays that an update has shortened: Debezium calls newSize size.
func appendTruncated(b []byte, truncated change.Value) ([]byte, error) {
	if truncated.Type != change.TypeArray || len(truncated.Data) <= 5 {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for at := 4; ; {
		name, v, next, err := change.Element(truncated.Data, at)
		if err != nil {
			return b, fmt.Errorf("read truncated arrays: %w", err)
		}
		if name == nil {
			return append(b, ']'), nil
		}
		if at > 4 {
			b = append(b, ',')
		}
		size, _ := v.Lookup("newSize").Int64()
		b = extjson.AppendString(append(b, `{"field":`...), v.Lookup("field").Text())
		b = append(strconv.AppendInt(append(b, `,"size":`...), size, 10), '}')
		at = next
	}
}

// messages returns the messages of a batch, without events whose terms have ended: the next owner,
// or a later batch, publishes these.
func (s *Sink) messages(b *delivery.Batch) ([]*Message, error) {
	if b.Loss != nil {
		return []*Message{s.encode.loss(b)}, nil
	}
	all := make([]*Message, 0, len(b.Events))
	leases := s.loop.leases
	clear(leases)
	s.encode.ids = strings.Builder{}
	s.encode.ids.Grow(len(b.Events) * idSize)
	for i := range b.Events {
		p := b.Events[i].Partition
		l, known := leases[p]
		if !known {
			l.term, l.incarnation, l.valid = s.shared.Lease(p, b.Seq)
			if l.valid {
				l.count = s.count(p, l)
			}
			leases[p] = l
		}
		if !l.valid {
			continue
		}
		m, err := s.encode.message(&b.Events[i], l.incarnation, b.Payload(i))
		if err != nil {
			return nil, err
		}
		l.count.n++
		m.Epoch = l.term.Epoch
		m.Number = l.count.n
		all = append(all, m)
	}
	return all, nil
}

// A lease is the right to publish a partition.
type lease struct {
	term        change.Term
	incarnation string
	valid       bool
	count       *count // nil without the right
}

// A count numbers the messages of a partition in a term and an incarnation.
type count struct {
	epoch       change.Epoch
	incarnation string
	n           uint64
}

// count returns the count of a partition's messages under a lease.
func (s *Sink) count(p change.Partition, l lease) *count {
	c := s.loop.counts[p]
	if c == nil || c.epoch != l.term.Epoch || c.incarnation != l.incarnation {
		c = &count{epoch: l.term.Epoch, incarnation: l.incarnation}
		s.loop.counts[p] = c
	}
	return c
}

// keySize and idSize are usual upper bounds of the keys and ids of messages, in bytes.
const keySize, idSize = 256, 112

// loss makes the message of a loss. Each node that serves the sink publishes its own.
func (e *encoder) loss(b *delivery.Batch) *Message {
	m := &Message{
		Op: OpLoss, Ref: b.To.Ref(), Time: b.To.Time,
	}
	text := delivery.AppendLoss(nil, string(b.To.Ref().AppendText(nil, e.cluster)), b.Loss)
	sum := sha256.Sum256(text)
	m.ID = "loss." + hex.EncodeToString(sum[:16])
	switch e.format {
	case BSON:
		m.Value = change.WrapDocument(change.AppendString(change.AppendString(nil, "operationType", "streamer:loss"), "loss", string(text)))
	case CloudEvents:
		m.Value = append(append(e.appendEnvelope(nil, m, &fields{time: m.Time}), text...), '}')
	default:
		m.Value = text
	}
	return m
}
