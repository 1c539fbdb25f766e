package devmongo_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
)

// mapping says what of the recorded server stands for what of ours: times, collections, cursors,
// tokens and processes differ, but each always in the same way.
type mapping struct {
	times    map[uint64]uint64
	binaries map[string]string // UUIDs of collections
	ids      map[string]string // ObjectIDs of processes
	cursors  map[int64]int64
	tokens   map[string]bsoncore.Document
	addr     string
}

func newMapping(addr string) *mapping {
	return &mapping{
		times: map[uint64]uint64{}, binaries: map[string]string{}, ids: map[string]string{}, cursors: map[int64]int64{},
		tokens: map[string]bsoncore.Document{}, addr: addr,
	}
}

// learn remembers that a recorded thing stands for an actual one, or checks that it still does.
func learn[K, V comparable](m map[K]V, recorded K, actual V, what string) error {
	if known, ok := m[recorded]; ok && known != actual {
		return fmt.Errorf("%s %v: got %v, but it stood for %v before", what, recorded, actual, known)
	}
	m[recorded] = actual
	return nil
}

// time translates a cluster time: a known one, or one as far from the nearest known one before it.
func (m *mapping) time(recorded uint64) uint64 {
	if actual, ok := m.times[recorded]; ok {
		return actual
	}
	var nearest uint64
	for known := range m.times {
		if known < recorded && known > nearest {
			nearest = known
		}
	}
	if nearest == 0 {
		return recorded
	}
	return m.times[nearest] + recorded - nearest
}

// translate rewrites a value of a recorded request for our server.
func (m *mapping) translate(name string, v bsoncore.Value) bsoncore.Value {
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		if name == "resumeAfter" || name == "startAfter" {
			return bsoncore.Value{Type: v.Type, Data: m.translateToken(v.Data)}
		}
		return bsoncore.Value{Type: v.Type, Data: m.translateDocument(v.Data)}
	case bsoncore.TypeArray:
		b := doc.New()
		for i, item := range doc.All(v.Data) {
			b.Value(i, m.translate(name, item))
		}
		return bsoncore.Value{Type: v.Type, Data: b.Bytes()}
	case bsoncore.TypeTimestamp:
		if name == "_id" { // a document's, not the server's
			return v
		}
		ts := m.time(query.Timestamp(v))
		return bsoncore.Value{Type: v.Type, Data: bsoncore.AppendTimestamp(nil, uint32(ts>>32), uint32(ts))}
	case bsoncore.TypeInt64:
		if actual, ok := m.cursors[v.Int64()]; ok && (name == "getMore" || name == "cursors") {
			return bsoncore.Value{Type: v.Type, Data: bsoncore.AppendInt64(nil, actual)}
		}
	case bsoncore.TypeObjectID:
		if actual, ok := m.ids[string(v.Data)]; ok {
			return bsoncore.Value{Type: v.Type, Data: []byte(actual)}
		}
	}
	return v
}

func (m *mapping) translateDocument(d bsoncore.Document) bsoncore.Document {
	b := doc.New()
	for name, v := range doc.All(d) {
		b.Value(name, m.translate(name, v))
	}
	return b.Document()
}

// translateToken returns the token that ours answered where the recorded server answered this one;
// a token that nobody ever answered is taken apart; one that cannot be stays as it is.
func (m *mapping) translateToken(d bsoncore.Document) bsoncore.Document {
	if actual, ok := m.tokens[string(d)]; ok {
		return actual
	}
	t, err := oplog.ParseToken(d)
	if err != nil {
		return d
	}
	t.TS = m.time(t.TS)
	if t.UUID != nil {
		if actual, ok := m.binaries[string(t.UUID[:])]; ok {
			t.UUID = (*[16]byte)([]byte(actual))
		}
	}
	return t.Document()
}

// token compares two tokens. Of a high watermark the time is not compared: the recorded server's
// majority point lags behind, ours does not.
func (m *mapping) token(recorded, actual bsoncore.Document) error {
	r, err := oplog.ParseToken(recorded)
	if err != nil {
		return fmt.Errorf("recorded token: %w", err)
	}
	a, err := oplog.ParseToken(actual)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if err := m.sameToken(r, a); err != nil {
		return fmt.Errorf("token %s for %s: %w", doc.Compact(actual), doc.Compact(recorded), err)
	}
	rb, _ := doc.Field(recorded, "_typeBits")
	ab, _ := doc.Field(actual, "_typeBits")
	if !query.Same(rb, ab) {
		return fmt.Errorf("type bits %v, want %v", ab, rb)
	}
	m.tokens[string(recorded)] = doc.Clone(actual)
	return nil
}

func (m *mapping) sameToken(r, a oplog.Token) error {
	if r.Type != a.Type || r.Version != a.Version || r.TxnOpIndex != a.TxnOpIndex || r.FromInvalidate != a.FromInvalidate || (r.UUID == nil) != (a.UUID == nil) {
		return fmt.Errorf("got %+v, want %+v", a, r)
	}
	if !bytes.Equal(r.Identifier, a.Identifier) {
		return fmt.Errorf("identifier %s, want %s", doc.Text(a.Identifier), doc.Text(r.Identifier))
	}
	if r.UUID != nil {
		if err := learn(m.binaries, string(r.UUID[:]), string(a.UUID[:]), "UUID"); err != nil {
			return err
		}
	}
	if r.IsMark() {
		return nil
	}
	return learn(m.times, r.TS, a.TS, "cluster time")
}

var (
	hexToken = regexp.MustCompile(`_data: "([0-9A-F]+)"`)
	recordID = regexp.MustCompile(`RecordId\((\d+)\)`)
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	cursorID = regexp.MustCompile(`cursor id (\d+)`)
)

// text translates a recorded message to a person.
func (m *mapping) text(s string) string {
	s = hexToken.ReplaceAllStringFunc(s, func(found string) string {
		data := hexToken.FindStringSubmatch(found)[1]
		d := m.translateToken(doc.New().String("_data", data).Document())
		v, _ := doc.Field(d, "_data")
		return fmt.Sprintf("_data: %q", v.StringValue())
	})
	s = recordID.ReplaceAllStringFunc(s, func(found string) string {
		ts, _ := strconv.ParseUint(recordID.FindStringSubmatch(found)[1], 10, 64)
		return fmt.Sprintf("RecordId(%d)", m.time(ts))
	})
	s = cursorID.ReplaceAllStringFunc(s, func(found string) string {
		id, _ := strconv.ParseInt(cursorID.FindStringSubmatch(found)[1], 10, 64)
		return fmt.Sprintf("cursor id %d", m.cursors[id])
	})
	return address.ReplaceAllString(s, m.addr)
}
