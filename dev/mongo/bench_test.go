package devmongo_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/mongo/doc"
)

// BenchmarkCursor measures how fast one change stream hands events of a full log to a client that
// reads the replies and throws them away. It reports events a second.
func BenchmarkCursor(b *testing.B) {
	scoped := bson.M{"$or": bson.A{
		bson.M{"ns.db": bson.M{"$in": bson.A{"bench"}}, "ns.coll": bson.M{"$in": bson.A{"a", "other"}}},
		bson.M{"to.db": bson.M{"$in": bson.A{"bench"}}, "to.coll": bson.M{"$in": bson.A{"a", "other"}}},
		bson.M{"operationType": "dropDatabase", "ns.db": bson.M{"$in": bson.A{"bench"}}},
		bson.M{"operationType": "invalidate"},
	}}
	for _, bc := range []struct {
		name   string
		stages []any
	}{
		{"all", nil},
		{"match on names", []any{bson.M{"$match": scoped}}},
		{"match on content", []any{bson.M{"$match": bson.M{"updateDescription.updatedFields.seq": bson.M{"$gte": 0}}}}},
		{"project", []any{bson.M{"$project": bson.M{"updateDescription": 0}}}},
	} {
		for _, release := range []string{"4.4", "7.0"} {
			b.Run(bc.name+"/"+release, func(b *testing.B) { benchmarkCursor(b, release, bc.stages) })
		}
	}
}

func benchmarkCursor(b *testing.B, release string, stages []any) {
	b.ReportAllocs()
	const logged = 200_000
	s := devmongotest.Start(b, devmongo.Config{Release: release, OplogBytes: 1 << 30})
	from := s.ClusterTime() + 1
	if err := s.Generate(b.Context(), devmongo.Generate{DB: "bench", Coll: "a", Count: logged, Documents: 1000, Payload: 64}); err != nil {
		b.Fatal(err)
	}
	c := &client{t: b, server: s}
	start := bson.M{"$changeStream": bson.M{
		"startAtOperationTime": bson.Timestamp{T: uint32(from >> 32), I: uint32(from)}, "allChangesForCluster": true,
	}}
	open, err := bson.Marshal(bson.D{
		{Key: "aggregate", Value: 1}, {Key: "pipeline", Value: append(bson.A{start}, stages...)},
		{Key: "cursor", Value: bson.M{"batchSize": 0}}, {Key: "$db", Value: "admin"},
	})
	if err != nil {
		b.Fatal(err)
	}
	var bytes int64
	events := 0
	for b.Loop() {
		before := s.Stats().EntriesExamined
		id := c.cursor(open)
		for s.Stats().EntriesExamined-before < logged {
			bytes += c.discard(doc.New().Int64("getMore", id).String("collection", "$cmd.aggregate").Int64("maxTimeMS", 1).String("$db", "admin").Document())
		}
		events += logged
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(bytes)/float64(events), "bytes/event")
}

// client is a client as thin as can be.
type client struct {
	t      testing.TB
	server *devmongo.Server
	conn   net.Conn
	buf    []byte
}

func (c *client) send(body bsoncore.Document) int64 {
	c.t.Helper()
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.server.Addr().String())
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = conn.Close() })
		c.conn, c.buf = conn, make([]byte, 1<<20)
	}
	if _, err := c.conn.Write(message{body: body}.encode(1, 0)); err != nil {
		c.t.Fatal(err)
	}
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		c.t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint32(length[:])) - 4
}

// discard sends a command and throws the reply away.
func (c *client) discard(body bsoncore.Document) int64 {
	n := c.send(body)
	for left := n; left > 0; {
		m, err := c.conn.Read(c.buf[:min(left, int64(len(c.buf)))])
		if err != nil {
			c.t.Fatal(err)
		}
		left -= int64(m)
	}
	return n
}

// cursor sends a command that opens a cursor and returns its id.
func (c *client) cursor(body bsoncore.Document) int64 {
	c.t.Helper()
	reply := make([]byte, c.send(body))
	if _, err := io.ReadFull(c.conn, reply); err != nil {
		c.t.Fatal(err)
	}
	id, ok := doc.Path(reply[17:], "cursor.id")
	if !ok {
		c.t.Fatal(fmt.Errorf("no cursor: %s", bsoncore.Document(reply[17:])))
	}
	return id.Int64()
}

// BenchmarkGenerate measures what making an event costs.
func BenchmarkGenerate(b *testing.B) {
	for _, g := range []devmongo.Generate{
		{Documents: 1000, Payload: 64}, {Documents: 1000, Payload: 64, ObjectIDs: true}, {Documents: 100_000, Payload: 256},
	} {
		b.Run(fmt.Sprintf("documents=%d payload=%d objectIDs=%t", g.Documents, g.Payload, g.ObjectIDs), func(b *testing.B) {
			b.ReportAllocs()
			s := devmongotest.Start(b, devmongo.Config{})
			g.DB, g.Coll, g.Count = "bench", "a", b.N
			b.ResetTimer()
			if err := s.Generate(b.Context(), g); err != nil {
				b.Fatal(err)
			}
		})
	}
}
