package store

import (
	"context"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Generation is a stream of changes to make.
type Generation struct {
	Name      Name
	Count     int  // events
	Rate      int  // events a second; 0 is as fast as possible
	Documents int  // distinct documents; at least 1
	ObjectIDs bool // _id is an ObjectID instead of an int64 from 1 on
	Payload   int  // bytes of the string field
}

// pace is how often a paced generation writes, and slice the most it writes under one lock.
const (
	generatorPace  = time.Millisecond
	generatorSlice = 128
)

// Generate inserts Documents documents and then updates them in rotation, until it has made Count events or ctx ends.
// Each has seq, counting the document's changes from 1, at, the wall clock in nanoseconds, and payload. Existing
// documents of the same _id are an error.
func Generate(ctx context.Context, s *Store, g Generation) error {
	g.Documents = max(1, g.Documents)
	x := &generator{Generation: g, payload: strings.Repeat("x", g.Payload), shapes: map[shape]*template{}}
	tick := time.NewTicker(generatorPace)
	defer tick.Stop()
	began := time.Now()
	for made := 0; made < g.Count; {
		due := g.Count - made
		if g.Rate > 0 {
			due = min(due, int(time.Since(began).Seconds()*float64(g.Rate))-made)
		}
		for due > 0 && ctx.Err() == nil {
			n := 0
			if err := s.bulk(g.Name, func(b bulk) (err error) {
				n, err = x.write(b, made, min(due, generatorSlice))
				return err
			}); err != nil {
				return err
			}
			made, due = made+n, due-n
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
	ns      *oplog.Namespace
	payload string
	records []*record
	shapes  map[shape]*template
	scratch [20]byte // an _id and the bytes of its key
}

// shape is what decides where things stand in an event: the kind, and how many bytes the key of _id has.
type shape struct {
	kind oplog.Kind
	key  int
}

// write makes up to n events from the number i on, all of one kind, and returns how many.
func (x *generator) write(b bulk, i, n int) (int, error) {
	if x.ns != b.ns() {
		if x.ns != nil {
			return 0, errGone()
		}
		x.ns = b.ns()
	}
	kind := oplog.Update
	if i < x.Documents {
		kind = oplog.Insert
		n = min(n, x.Documents-i)
	}
	if err := x.ready(b, kind, i, n); err != nil {
		return 0, err
	}
	b.log.AppendRaw(n, oplog.Raw{Kind: kind, NS: x.ns, Encode: func(j int, ts uint64, wall time.Time, dst []byte) []byte {
		return x.event(b, kind, i+j, ts, wall, dst)
	}})
	return n, nil
}

func errGone() error {
	return wire.Errorf(wire.NoMatchingDocument, "a generated document was removed")
}

// ready checks that the documents to insert do not exist, and that those to update do.
func (x *generator) ready(b bulk, kind oplog.Kind, i, n int) error {
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
		if b.taken(key) {
			return duplicateKey(x.ns.String(), id)
		}
	}
	return nil
}

// id is the _id of the document that event i changes, and the bytes of its key; valid until the next call.
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

func (x *generator) event(b bulk, kind oplog.Kind, i int, ts uint64, wall time.Time, dst []byte) []byte {
	id, key := x.id(i)
	seq := int64(i/x.Documents) + 1
	t := x.shapes[shape{kind, len(key)}]
	if t == nil {
		t = newTemplate(b.log, kind, x.ns, id, key, x.payload)
		x.shapes[shape{kind, len(key)}] = t
	}
	at := wall.UnixNano()
	d := t.document(id, at, seq)
	if kind == oplog.Insert {
		whole, _ := doc.SortKey(id) // numbers and object ids always have one
		x.records = append(x.records, b.insert(whole, d, ts))
	} else {
		b.replace(x.records[i%x.Documents], d, ts)
	}
	return t.event(dst, ts, wall.UnixMilli(), id, key, at, seq)
}
