package client_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/internal/mongodb/stream"
)

// A mongo is a MongoDB as the log of a town.
type mongo struct {
	*stream.Source

	first change.Timestamp
	now   func(context.Context) (change.Timestamp, error)
}

// Reach returns a time before anything was written, and the present one.
func (m *mongo) Reach() (first, last change.Timestamp) {
	now, err := m.now(context.Background())
	if err != nil {
		return m.first, m.first
	}
	return m.first, now
}

// Two nodes read one MongoDB, each by itself. Both serve everything to who asks for it, and each what it owns to who follows the topology.
func TestTwoNodesServeOneMongoDB(t *testing.T) {
	for name, of := range map[string]func(*journal, *town) client.Config{"all, at a node that owns nothing": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			c := mongodbtest.Dial(t, devmongotest.URI(t))
			db := mongodbtest.Database(t, c)
			source, err := stream.NewSource(stream.SourceConfig{Watch: stream.Watch{Namespaces: []string{db + ".*"}}}, c)
			if err != nil {
				t.Fatal(err)
			}
			if err := source.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := &mongo{Source: source, now: c.Now}
			if m.first, err = c.Now(t.Context()); err != nil {
				t.Fatal(err)
			}
			w, l := &town{T: t, log: m, partitions: shares, changed: make(chan struct{})}, newLedger()
			w.populate(2)
			w.own(func(p int) int {
				if name == "owned" {
					return p % 2
				}
				return 1
			})
			p := start(t, of(l.journal, w), l.handle)
			told(t, l.journal, func(c notice.Connected) bool { return c.Node == "node-0" })
			var written int64
			for range 100 {
				if _, err := c.Driver().Database(db).Collection("c").InsertOne(t.Context(), bson.D{{Key: "_id", Value: written}}); err != nil {
					t.Fatal(err)
				}
				written++
			}
			l.expect(t, written)
			p.end()
		})
	}
}
