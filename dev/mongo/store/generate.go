package store

import (
	"context"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Generation describes changes to make.
type Generation struct {
	DB, Coll string
	// Count is the number of events: first an insert of each document, then updates in rotation.
	Count int
	// Rate is the number of events a second, in even slices; 0 is as fast as possible.
	Rate int
	// Documents is the number of distinct _ids. Defaults to 1.
	Documents int
	// ObjectIDs makes them ObjectIDs instead of int64s from 1 on.
	ObjectIDs bool
	// Payload is the length of the string field "payload".
	Payload int
}

const (
	generatorPace  = time.Millisecond
	generatorSlice = 128
)

// Generate inserts Documents documents and then updates them in rotation, until it has made Count
// events or ctx ends. Each has seq, counting the document's changes from 1, at, the wall clock in
// nanoseconds, and payload. Existing documents of the same _id are an error.
func (s *Store) Generate(ctx context.Context, g Generation) error {
	g.Documents = max(1, g.Documents)
	x := &generator{store: s, Generation: g, payload: strings.Repeat("x", g.Payload), shapes: map[shape]*template{}}
	tick := time.NewTicker(generatorPace)
	defer tick.Stop()
	began := time.Now()
	for made := 0; made < g.Count; {
		due := g.Count - made
		if g.Rate > 0 {
			due = min(due, int(time.Since(began).Seconds()*float64(g.Rate))-made)
		}
		for due > 0 && ctx.Err() == nil {
			n, err := x.write(made, min(due, generatorSlice))
			if err != nil {
				return err
			}
			made += n
			due -= n
		}
		if g.Rate == 0 || made == g.Count {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// generator makes events by copying a template and writing the parts that differ into it.
type generator struct {
	Generation
	store   *Store
	to      *collection
	ns      *oplog.Namespace
	payload string
	records []*record
	shapes  map[shape]*template
	scratch [20]byte // an _id and the bytes of its key
}

// shape decides the offsets in an event: the kind, and the length of the key of _id in bytes.
type shape struct {
	kind oplog.Kind
	key  int
}

// write makes up to n events from the number i on, all of one kind, and returns how many.
func (x *generator) write(i, n int) (int, error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	c, err := x.store.target(Name{x.DB, x.Coll}, Writer{})
	if err != nil {
		return 0, err
	}
	if x.ns != nil && x.ns != c.ns {
		return 0, errGone()
	}
	x.to = c
	x.ns = c.ns
	kind := oplog.Update
	if i < x.Documents {
		kind = oplog.Insert
		n = min(n, x.Documents-i)
	}
	if err := x.ready(kind, i, n); err != nil {
		return 0, err
	}
	x.store.log.AppendRaw(n, oplog.Raw{Kind: kind, NS: x.ns, Encode: func(j int, ts uint64, wall time.Time, dst []byte) []byte {
		return x.event(kind, i+j, ts, wall, dst)
	}})
	return n, nil
}

func errGone() error {
	return wire.Errorf(wire.NoMatchingDocument, "a generated document was removed")
}

// ready checks that the documents to insert do not exist, and that those to update do.
func (x *generator) ready(kind oplog.Kind, i, n int) error {
	for j := range n {
		if kind == oplog.Update {
			if x.records[(i+j)%x.Documents].gone {
				return errGone()
			}
			continue
		}
		id, _ := x.id(i + j)
		key, err := doc.SortKey(id)
		if err != nil {
			return err
		}
		if x.to.docs[key] != nil {
			return duplicateKey(x.ns.String(), id)
		}
	}
	return nil
}

// id is the _id of the document that event i changes, and the bytes of its key; valid until the
// next call.
func (x *generator) id(i int) (bsoncore.Value, []byte) {
	n := uint64(i%x.Documents) + 1
	id, key := x.scratch[:12], x.scratch[12:]
	if x.ObjectIDs {
		copy(id, x.ns.UUID[:4])
		binary.BigEndian.PutUint64(id[4:], n)
		return bsoncore.Value{Type: bsoncore.TypeObjectID, Data: id}, id
	}
	binary.LittleEndian.PutUint64(id, n)
	binary.BigEndian.PutUint64(key, n<<1)
	return bsoncore.Value{Type: bsoncore.TypeInt64, Data: id[:8]}, key[8-(bits.Len64(n<<1)+7)/8:]
}

func (x *generator) event(kind oplog.Kind, i int, ts uint64, wall time.Time, dst []byte) []byte {
	id, key := x.id(i)
	seq := int64(i/x.Documents) + 1
	t := x.shapes[shape{kind, len(key)}]
	if t == nil {
		t = newTemplate(x.store.log, kind, x.ns, id, key, x.payload)
		x.shapes[shape{kind, len(key)}] = t
	}
	at := wall.UnixNano()
	d := t.document(id, at, seq)
	if kind == oplog.Insert {
		whole, _ := doc.SortKey(id) // numbers and object ids always have one
		x.store.remember(x.to, whole, ts)
		x.records = append(x.records, x.to.insert(whole, d, ts))
	} else {
		r := x.records[i%x.Documents]
		x.store.remember(x.to, r.key, ts)
		x.to.replace(r, d, ts)
	}
	return t.event(dst, ts, wall.UnixMilli(), id, key, at, seq)
}

// template is an event and a document, with the offsets of their varying parts.
type template struct {
	sample, stored     []byte
	ts, key            int // of the hex digits in the token
	clock, wall        int
	documentKey        int
	fullID             int // _id in the fullDocument of an insert
	at, seq            int
	docID, docAt, docS int
}

func newTemplate(log *oplog.Log, kind oplog.Kind, ns *oplog.Namespace, id bsoncore.Value, key []byte, payload string) *template {
	fields := func(b *doc.Builder) bsoncore.Document {
		return b.Int64("at", 0).String("payload", payload).Int64("seq", 0).Document()
	}
	stored := fields(doc.New().Value("_id", id))
	op := oplog.Op{Kind: kind, NS: ns, ID: id, Doc: stored, Updated: fields(doc.New())}
	if log.Release().Deltas() {
		op.Truncated = doc.New().Bytes()
	}
	t := &template{sample: log.Sample(op), stored: stored, wall: -1, fullID: -1}
	t.ts = offset(t.sample, "_id", "_data") + 4 + 2
	hex := strings.ToUpper(hexOf(append([]byte("_id\x00"), typed(id, key)...)))
	t.key = strings.Index(string(t.sample), hex) + len(hex) - 2*len(key)
	t.clock = offset(t.sample, "clusterTime")
	if log.Release().WallTime() {
		t.wall = offset(t.sample, "wallTime")
	}
	t.documentKey = offset(t.sample, "documentKey", "_id")
	inside := []string{"updateDescription", "updatedFields"}
	if kind == oplog.Insert {
		inside = []string{"fullDocument"}
		t.fullID = offset(t.sample, "fullDocument", "_id")
	}
	t.at, t.seq = offset(t.sample, append(inside, "at")...), offset(t.sample, append(inside, "seq")...)
	t.docID, t.docAt, t.docS = offset(stored, "_id"), offset(stored, "at"), offset(stored, "seq")
	return t
}

// typed is the key of an _id with its type byte.
func typed(id bsoncore.Value, key []byte) []byte {
	full, _ := doc.SortKey(id)
	return append([]byte{full[0]}, key...)
}

// offset is where the data of a nested value begins.
func offset(d []byte, names ...string) int {
	at := 0
	for i, name := range names {
		n, _ := doc.Offset(d, name)
		step := n + 1 + len(name) + 1
		at += step
		if d = d[step:]; i < len(names)-1 {
			d = d[:binary.LittleEndian.Uint32(d)]
		}
	}
	return at
}

func (t *template) document(id bsoncore.Value, at, seq int64) bsoncore.Document {
	d := append(make([]byte, 0, len(t.stored)), t.stored...)
	copy(d[t.docID:], id.Data)
	binary.LittleEndian.PutUint64(d[t.docAt:], uint64(at))
	binary.LittleEndian.PutUint64(d[t.docS:], uint64(seq))
	return d
}

func (t *template) event(dst []byte, ts uint64, wall int64, id bsoncore.Value, key []byte, at, seq int64) []byte {
	dst = append(dst, t.sample...)
	var clock [8]byte
	binary.BigEndian.PutUint64(clock[:], ts)
	putHex(dst[t.ts:], clock[:])
	putHex(dst[t.key:], key)
	binary.LittleEndian.PutUint64(dst[t.clock:], ts)
	if t.wall >= 0 {
		binary.LittleEndian.PutUint64(dst[t.wall:], uint64(wall))
	}
	copy(dst[t.documentKey:], id.Data)
	if t.fullID >= 0 {
		copy(dst[t.fullID:], id.Data)
	}
	binary.LittleEndian.PutUint64(dst[t.at:], uint64(at))
	binary.LittleEndian.PutUint64(dst[t.seq:], uint64(seq))
	return dst
}

func putHex(dst, src []byte) {
	const digits = "0123456789ABCDEF"
	for i, b := range src {
		dst[2*i], dst[2*i+1] = digits[b>>4], digits[b&15]
	}
}

func hexOf(b []byte) string {
	out := make([]byte, 2*len(b))
	putHex(out, b)
	return string(out)
}
