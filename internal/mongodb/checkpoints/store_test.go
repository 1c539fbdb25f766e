package checkpoints

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of what the tests do is to wait; -parallel still decides
	// Taking a toxic away may leave goroutines of toxiproxy behind.
	leaktest.Main(m,
		"github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run",
		"github.com/Shopify/toxiproxy/v2.(*ToxicLink).read")
}

// opener opens stores for the suites, all in one deployment.
func opener(t *testing.T) func(t *testing.T) checkpointtest.Harness {
	uri := devmongotest.URI(t)
	return func(t *testing.T) checkpointtest.Harness {
		direct := mongodbtest.Dial(t, uri)
		name := mongodbtest.Database(t, direct)
		l := newLink(t, uri)
		open := func(c *mongodb.Client) *Store { return NewStore(c, name, "c", checkpointtest.Partitions) }
		store := open(mongodbtest.Dial(t, l.uri))
		l.stand(store)
		plain := open(direct)
		var begun atomic.Uint64
		return checkpointtest.Harness{
			Store:  store,
			Begin:  func(partitions ...change.Partition) []change.Term { return plain.begin(t, begun.Add(1), partitions...) },
			Reopen: func() checkpointtest.Store { return open(direct) },
			Put: func(k checkpoint.Key, stored []byte) {
				set := bson.D{{Key: checkpointField, Value: string(stored)}}
				if _, err := plain.checkpoints.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: idOf(k)}}, bson.D{{Key: "$set", Value: set}}, upsert()); err != nil {
					t.Fatal(err)
				}
			},
			PutGap: func(id string, stored []byte) {
				set := bson.D{{Key: gapField, Value: string(stored)}}
				if _, err := plain.gaps.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: set}}, upsert()); err != nil {
					t.Fatal(err)
				}
			},
			Raw: func(k checkpoint.Key) []byte {
				raw, err := plain.checkpoints.FindOne(context.WithoutCancel(t.Context()), bson.D{{Key: "_id", Value: idOf(k)}}).Raw()
				if errors.Is(err, mongo.ErrNoDocuments) {
					return nil
				}
				if err != nil {
					t.Fatal(err)
				}
				if text, there := raw.Lookup(checkpointField).StringValueOK(); there {
					return []byte(text)
				}
				return nil
			},
			Fill: func(all []checkpoint.Checkpoint) { plain.fill(t, all) },
			Link: l,
		}
	}
}

func upsert() options.Lister[options.UpdateOneOptions] { return options.UpdateOne().SetUpsert(true) }

// fill writes the first checkpoints of subscribers in one go, as one claim after the other writes
// them.
func (s *Store) fill(t *testing.T, all []checkpoint.Checkpoint) {
	t.Helper()
	updates := make([]mongo.WriteModel, len(all))
	for i, c := range all {
		var err error
		if updates[i], err = s.update(c.Key, document{}, write{checkpoint: &c}, bson.NewObjectID()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.checkpoints.BulkWrite(t.Context(), updates); err != nil {
		t.Fatal(err)
	}
}

// begin begins terms of partitions with a revision, under the origin that stands, or a new one.
func (s *Store) begin(t *testing.T, revision uint64, partitions ...change.Partition) []change.Term {
	t.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Partitions = s.partitions
	origin, err := s.Create(t.Context(), origin)
	if err != nil {
		t.Fatal(err)
	}
	epoch := change.Epoch{Incarnation: origin.Incarnation, Revision: revision}
	terms := make([]change.Term, len(partitions))
	for i, p := range partitions {
		terms[i] = change.Term{Partition: p, Epoch: epoch, Context: t.Context()}
	}
	return terms
}

func TestCheckpointsInMongoDBAreAStore(t *testing.T) {
	t.Parallel()
	checkpointtest.TestStore(t, opener(t))
}

func TestCheckpointsInMongoDBAreCountedAnew(t *testing.T) {
	t.Parallel()
	checkpointtest.TestRepartition(t, opener(t), func(checkpointtest.Harness) {})
}

// A link is the connection of a store under test: a proxy that can be cut, and a function that
// keeps writes or loses answers.
type link struct {
	*testing.T

	uri   string
	proxy *toxiproxy.Proxy

	mu struct {
		sync.Mutex
		meet func(ctx context.Context, send func(context.Context) error) error // the next write
	}
}

// newLink makes a link to the first host of a connection string.
func newLink(t *testing.T, uri string) *link {
	t.Helper()
	host := strings.TrimPrefix(uri, "mongodb://")
	host = host[strings.LastIndex(host, "@")+1:]
	if end := strings.IndexAny(host, ",/"); end >= 0 {
		host = host[:end]
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))
	l := &link{T: t, proxy: toxiproxy.NewProxy(server, "mongodb", "127.0.0.1:0", host)}
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	// Directly, or the driver would go to the address that the server tells of itself.
	l.uri = "mongodb://" + l.proxy.Listen + "/?directConnection=true"
	return l
}

// stand puts the link between a store and its server.
func (l *link) stand(m *Store) {
	send := m.write
	m.write = func(ctx context.Context, updates []mongo.WriteModel) (result *mongo.BulkWriteResult, err error) {
		l.mu.Lock()
		meet := l.mu.meet
		l.mu.meet = nil
		l.mu.Unlock()
		if meet == nil {
			return send(ctx, updates)
		}
		err = meet(ctx, func(ctx context.Context) error {
			_, err := send(ctx, updates)
			return err
		})
		return nil, err
	}
}

func (l *link) next(meet func(ctx context.Context, send func(context.Context) error) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.meet = meet
}

// Hold implements checkpointtest.Link.
func (l *link) Hold() (held <-chan struct{}, deliver func()) {
	kept := make(chan struct{})
	var late func() error
	l.next(func(ctx context.Context, send func(context.Context) error) error {
		late = func() error { return send(context.Background()) } // without the session, which has ended by then
		close(kept)
		<-ctx.Done()
		return ctx.Err()
	})
	return kept, func() {
		<-kept
		if err := late(); err != nil {
			l.Errorf("the late write was not taken: %v", err)
		}
	}
}

// Mute implements checkpointtest.Link.
func (l *link) Mute() <-chan struct{} {
	muted := make(chan struct{})
	l.next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(context.Background()); err != nil {
			l.Errorf("the write was not taken: %v", err)
		}
		close(muted)
		<-ctx.Done()
		return ctx.Err()
	})
	return muted
}

// Cut implements checkpointtest.Link: nothing passes any more, and nobody is told.
func (l *link) Cut() (heal func()) {
	l.Helper()
	toxic, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name": "cut", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`))
	if err != nil {
		l.Fatal(err)
	}
	return func() {
		if err := l.proxy.Toxics.RemoveToxic(context.Background(), toxic.Name); err != nil {
			l.Errorf("heal: %v", err)
		}
	}
}
