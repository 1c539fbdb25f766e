package devmongo_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// d makes an ordered document of names and values.
func d(pairs ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}

// connect connects the real driver until the test ends.
func connect(t testing.TB, s *devmongo.Server, change ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	o := options.Client().ApplyURI(s.URI()).SetServerSelectionTimeout(time.Minute)
	for _, f := range change {
		f(o)
	}
	c, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		_ = c.Disconnect(ctx)
	})
	return c
}

// start runs a server and connects to it.
func start(t testing.TB, c devmongo.Config) (*devmongo.Server, *mongo.Client) {
	t.Helper()
	s := devmongotest.Start(t, c)
	return s, connect(t, s)
}

// run sends a command and fails the test when it fails.
func run(t testing.TB, c *mongo.Client, db string, cmd bson.D) bson.Raw {
	t.Helper()
	raw, err := c.Database(db).RunCommand(t.Context(), cmd).Raw()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return raw
}

// insert stores documents.
func insert(t testing.TB, c *mongo.Collection, docs ...any) {
	t.Helper()
	if _, err := c.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

// code is the error code of a server's error, 0 for none.
func code(err error) int {
	var ce mongo.CommandError
	var we mongo.WriteException
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ce):
		return int(ce.Code)
	case errors.As(err, &we) && len(we.WriteErrors) > 0:
		return we.WriteErrors[0].Code
	default:
		return -1
	}
}

// wantCode fails the test when an error has another code.
func wantCode(t testing.TB, err error, want int) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("error %v has code %d, want %d", err, got, want)
	}
}

// stream is an open change stream in a test.
type stream struct {
	*mongo.ChangeStream
	t testing.TB
}

// watcher is what can be watched: a client, a database, a collection.
type watcher interface {
	Watch(ctx context.Context, pipeline any, opts ...options.Lister[options.ChangeStreamOptions]) (*mongo.ChangeStream, error)
}

// tryWatch opens a change stream.
func tryWatch(t testing.TB, w watcher, pipeline []bson.D, change ...func(*options.ChangeStreamOptionsBuilder)) (*stream, error) {
	t.Helper()
	o := options.ChangeStream().SetMaxAwaitTime(50 * time.Millisecond)
	for _, f := range change {
		f(o)
	}
	if pipeline == nil {
		pipeline = []bson.D{}
	}
	cs, err := w.Watch(t.Context(), pipeline, o)
	if err != nil {
		return nil, err
	}
	s := &stream{cs, t}
	t.Cleanup(s.close)
	return s, nil
}

// watch opens a change stream that must open.
func watch(t testing.TB, w watcher, pipeline []bson.D, change ...func(*options.ChangeStreamOptionsBuilder)) *stream {
	t.Helper()
	s, err := tryWatch(t, w, pipeline, change...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) close() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	_ = s.Close(ctx)
}

// next is the next event; the test fails when none comes.
func (s *stream) next() bson.Raw {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer stop()
	if !s.Next(ctx) {
		s.t.Fatalf("no event: %v", s.Err())
	}
	return slices.Clone(s.Current)
}

// fails reads until the stream fails, and returns the error's code.
func (s *stream) fails() int {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer stop()
	for s.Next(ctx) {
	}
	return code(s.Err())
}

// none checks that one getMore brings nothing.
func (s *stream) none() {
	s.t.Helper()
	if s.TryNext(s.t.Context()) {
		s.t.Fatalf("an event: %s", s.Current)
	}
	if err := s.Err(); err != nil {
		s.t.Fatal(err)
	}
}

// text is a string field of an event, by its path.
func text(raw bson.Raw, path ...string) string {
	v := raw.Lookup(path...)
	s, _ := v.StringValueOK()
	return s
}

// types are the operation types of the next n events.
func (s *stream) types(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		out = append(out, text(s.next(), "operationType"))
	}
	return out
}

func equal[T comparable](t testing.TB, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func resumeAfter(token bson.Raw) func(*options.ChangeStreamOptionsBuilder) {
	return func(o *options.ChangeStreamOptionsBuilder) { o.SetResumeAfter(token) }
}

func startAfter(token bson.Raw) func(*options.ChangeStreamOptionsBuilder) {
	return func(o *options.ChangeStreamOptionsBuilder) { o.SetStartAfter(token) }
}

func startAt(ts uint64) func(*options.ChangeStreamOptionsBuilder) {
	return func(o *options.ChangeStreamOptionsBuilder) {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(ts >> 32), I: uint32(ts)})
	}
}

func clusterTime(raw bson.Raw) uint64 {
	t, i := raw.Lookup("clusterTime").Timestamp()
	return uint64(t)<<32 | uint64(i)
}
