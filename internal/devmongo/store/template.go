package store

import (
	"encoding/binary"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// template is an event and a document, and where in them the parts stand that differ.
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
