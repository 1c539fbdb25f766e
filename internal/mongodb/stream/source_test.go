package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/oplog"
)

// A scene is a deployment, a collection of its own in it, and a source that watches that
// collection.
type scene struct {
	*testing.T
	client *mongodb.Client
	coll   *mongo.Collection
	source *Source
	fails  bool // it has the server's fail point
}

// failPoint is the server's one fail point: on a server that tests share, one of them has it at a
// time.
var failPoint sync.Mutex //nolint:gochecknoglobals // of the server, as the fail point is

func newScene(t *testing.T, uri string, cfg SourceConfig) *scene {
	t.Helper()
	c := mongodbtest.Dial(t, uri)
	coll := c.Driver().Database(mongodbtest.Database(t, c)).Collection("c")
	if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "first"}}); err != nil {
		t.Fatal(err)
	}
	cfg.Watch.Namespaces = append(cfg.Watch.Namespaces, coll.Database().Name()+".*")
	cfg.MaxAwait, cfg.MinReopen, cfg.MaxBackoff = 50*time.Millisecond, time.Millisecond, 20*time.Millisecond
	source, err := NewSource(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &scene{T: t, client: c, coll: coll, source: source}
}

// open opens a stream until the test ends.
func (s *scene) open(from change.Position) oplog.Stream {
	s.Helper()
	stream, err := s.source.Open(s.Context(), from)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(stream.Close)
	return stream
}

func (s *scene) insert(ids ...any) {
	s.Helper()
	for _, id := range ids {
		if _, err := s.coll.InsertOne(s.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
			s.Fatal(err)
		}
	}
}

// read reads n events.
func (s *scene) read(stream oplog.Stream, n int) (events []change.Event) {
	s.Helper()
	for len(events) < n {
		reply, err := stream.Next(s.Context())
		if err != nil {
			s.Fatalf("after %d of %d events: %v", len(events), n, err)
		}
		for _, raw := range reply.Events {
			e, err := change.Parse(raw)
			if err != nil {
				s.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events
}

// fail makes commands of the scene's client fail as MongoDB's failCommand does, until the test
// ends.
func (s *scene) fail(mode any, data bson.D) {
	s.Helper()
	if !s.fails {
		failPoint.Lock()
		s.Cleanup(failPoint.Unlock)
		s.fails = true
	}
	data = append(data, bson.E{Key: "appName", Value: s.client.Application()})
	set := func(ctx context.Context, mode any, data bson.D) error {
		return s.client.Driver().Database("admin").RunCommand(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
		}).Err()
	}
	if err := set(s.Context(), mode, data); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := set(context.Background(), "off", bson.D{}); err != nil {
			s.Error(err)
		}
	})
}

func times(n int) bson.D { return bson.D{{Key: "times", Value: n}} }

func failing(command string, code int, labels ...string) bson.D {
	data := bson.D{{Key: "failCommands", Value: bson.A{command}}, {Key: "errorCode", Value: code}}
	if len(labels) > 0 {
		data = append(data, bson.E{Key: "errorLabels", Value: labels})
	}
	return data
}

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestEveryChangeOfATransactionAndOfASecondIsAnEvent(t *testing.T) {
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	stream := s.open(change.Position{})
	session, err := s.client.Driver().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		if _, err := s.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: 7}}); err != nil {
			return nil, err
		}
		if _, err := s.coll.UpdateByID(ctx, 7, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}); err != nil {
			return nil, err
		}
		_, err := s.coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: 7}})
		return nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		if _, err := s.coll.UpdateByID(t.Context(), "first", bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: v}}}}); err != nil {
			t.Fatal(err)
		}
	}
	events := s.read(stream, 5)
	for i, want := range []change.Op{change.OpInsert, change.OpUpdate, change.OpDelete, change.OpUpdate, change.OpUpdate} {
		if events[i].Op() != want {
			t.Errorf("event %d is %v", i, events[i].Op())
		}
	}
	for i := range 2 {
		if events[i].Time() != events[i+1].Time() || !events[i+1].Position().After(events[i].Position()) {
			t.Errorf("changes %d and %d of the transaction: %v, %v", i, i+1, events[i].Position(), events[i+1].Position())
		}
	}
}

func TestStreamResumesBehindAnyPosition(t *testing.T) {
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	first := s.open(change.Position{})
	s.insert(1, 2, 3)
	events := s.read(first, 3)
	s.insert(4)
	for name, from := range map[string]change.Position{
		"an event": events[1].Position(), "a time": change.At(events[2].Time()),
	} {
		got := s.read(s.open(from), 2)
		if got[0].Position().Compare(events[2].Position()) != 0 {
			t.Errorf("behind %s: %v", name, got[0].Position())
		}
	}
	// Progress moves on where nothing happens that is watched.
	other := s.coll.Database().Client().Database(mongodbtest.Database(t, s.client)).Collection("other")
	quiet := s.open(change.Position{})
	if _, err := other.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	for begin := quiet.Base(); ; {
		reply, err := quiet.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if reply.End.After(begin) {
			s.insert(5)
			if got := s.read(s.open(reply.End), 1); got[0].ID().Data[0] != 5 {
				t.Errorf("behind progress: %v", got[0].Position())
			}
			return
		}
	}
}

// What passes by itself never surfaces: the stream is opened again and goes on where it was.
func TestStreamSurvivesWhatPassesByItself(t *testing.T) {
	t.Parallel()
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	for _, c := range []struct {
		name string
		mode any
		data bson.D
	}{
		{"cursor not found", times(1), failing("getMore", 43)},
		{"election, resumed by the driver", times(1), failing("getMore", 10107, "ResumableChangeStreamError")},
		{"election, without the label", times(1), failing("getMore", 91)},
		{"not primary", times(2), failing("getMore", 13435)},
		{"the opening fails too", times(4), bson.D{
			{Key: "failCommands", Value: bson.A{"getMore", "aggregate"}}, {Key: "errorCode", Value: 189},
		}},
		{"connection closed", times(1), bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "closeConnection", Value: true}}},
		{"an unknown error, once", times(1), failing("getMore", 4711)},
		{"a token refused", times(1), failing("getMore", 280, "NonResumableChangeStreamError")},
		{"a token unusable", times(1), failing("getMore", 260)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &scene{T: t, client: s.client, coll: s.coll, source: s.source}
			stream := s.open(change.Position{})
			s.insert(c.name + " 1")
			s.read(stream, 1)
			s.fail(c.mode, c.data)
			s.insert(c.name+" 2", c.name+" 3")
			seen := map[string]bool{}
			for len(seen) < 2 {
				for _, e := range s.read(stream, 1) {
					if id := string(e.ID().Text()); id != c.name+" 1" { // an opening by time repeats; the lane drops it
						seen[id] = true
					}
				}
			}
			if !seen[c.name+" 2"] || !seen[c.name+" 3"] {
				t.Errorf("saw %v", seen)
			}
		})
	}
}

func TestStreamEndsWithWhatAPersonMustActUpon(t *testing.T) {
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	for _, c := range []struct {
		code int
		want fault.Code
		lost bool
	}{
		{13, fault.MongoUnauthorized, false},
		{40573, fault.MongoStandalone, false},
		{40647, fault.LogTokenRefused, false},
		{10334, fault.LogPoisonEvent, false},
		{4711, fault.MongoRefused, false}, // an unknown error that does not pass
		{286, "", true},
		{136, "", true},
		{464, "", true},
		{280, "", true}, // also when opened by time
	} {
		for _, command := range []string{"getMore", "aggregate"} {
			t.Run(fmt.Sprint(command, " ", c.code), func(t *testing.T) {
				s := &scene{T: t, client: s.client, coll: s.coll, source: s.source}
				stream := s.open(change.Position{})
				s.insert(fmt.Sprint(command, c.code))
				at := s.read(stream, 1)[0].Position().Clone()
				s.fail("alwaysOn", failing(command, c.code))
				var err error
				if command == "aggregate" {
					_, err = s.source.Open(t.Context(), at)
				} else {
					for err == nil {
						_, err = stream.Next(t.Context())
					}
				}
				if fault.Of(err) != c.want || errors.Is(err, oplog.ErrPositionLost) != c.lost {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// After the log has wrapped a real server takes a lost event token without an error, and hands out
// progress beyond the loss.
func TestSilentOpeningOfALostPositionIsSeenThrough(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	stream := s.open(change.Position{})
	s.insert(1, 2)
	events := s.read(stream, 2)
	stream.Close()
	other := s.client.Driver().Database("elsewhere").Collection("c")
	for i := range 5 {
		if _, err := other.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	server.TruncateOplog(2)
	for name, from := range map[string]change.Position{
		"an event": events[0].Position(), "a time": change.At(events[0].Time()), "a point of progress": change.At(events[1].Time()),
	} {
		if _, err := s.source.Open(t.Context(), from); !errors.Is(err, oplog.ErrPositionLost) {
			t.Errorf("opened at %s: %v", name, err)
		}
	}
}

// The driver resumes by itself inside a read, and then progress must be proven anew.
func TestLogThatWrapsWhileTheDriverResumesIsSeenThrough(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	stream := s.open(change.Position{})
	s.insert(1)
	s.read(stream, 1)
	s.insert(2) // will be lost
	other := s.client.Driver().Database("elsewhere").Collection("c")
	for i := range 5 {
		if _, err := other.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	s.fail(times(1), failing("getMore", 10107, "ResumableChangeStreamError"))
	server.TruncateOplog(2)
	for {
		reply, err := stream.Next(t.Context())
		if err != nil {
			if !errors.Is(err, oplog.ErrPositionLost) {
				t.Error(err)
			}
			return
		}
		if len(reply.Events) > 0 || !reply.End.IsZero() {
			t.Fatalf("progress beyond a loss: %d events, %v", len(reply.Events), reply.End)
		}
	}
}

// A server first looks for the position when it is first read from: what it loses between an
// opening that was proven and that reading is seen through too.
func TestLogThatWrapsRightAfterTheOpeningIsSeenThrough(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	s.source.can.database = s.coll.Database().Name() // what happens elsewhere does not give the loss away
	first := s.open(change.Position{})
	s.insert(1, 2)
	from := s.read(first, 2)[0].Position().Clone()
	reopened := s.open(from)
	other := s.client.Driver().Database("elsewhere").Collection("c")
	for i := range 5 {
		if _, err := other.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	server.TruncateOplog(2)
	for range 5 {
		reply, err := reopened.Next(t.Context())
		if errors.Is(err, oplog.ErrPositionLost) {
			return
		}
		if err != nil || len(reply.Events) > 0 || reply.End.After(from) {
			t.Fatalf("progress beyond a loss: %d events, %v, %v", len(reply.Events), reply.End, err)
		}
	}
	t.Error("the loss is not seen")
}

// Whether the position is in the log is asked on another connection, which may break too: then it
// is asked again.
func TestProofThatBreaksIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	stream := s.open(change.Position{})
	s.fail(times(6), failing("find", 91)) // more than the driver retries
	for from := stream.Base(); ; {
		reply, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if reply.End.After(from) {
			break
		}
		s.noop()
	}
	s.insert(1)
	s.read(stream, 1)
}

// noop lets the log move on without an event.
func (s *scene) noop() {
	s.Helper()
	other := s.client.Driver().Database(mongodbtest.Database(s.T, s.client)).Collection("c")
	if _, err := other.InsertOne(s.Context(), bson.D{{Key: "v", Value: 1}}); err != nil {
		s.Fatal(err)
	}
}

// A stream that always breaks after an opening that succeeds is opened at most once in the time
// set, by whomever.
func TestReopeningIsHeldBack(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	s.source.cfg.MinReopen = 100 * time.Millisecond
	stream := s.open(change.Position{})
	s.fail(times(5), failing("getMore", 43))
	begun, before := time.Now(), server.Stats().Aggregates
	s.insert(1)
	s.read(stream, 1)
	if n, took := server.Stats().Aggregates-before, time.Since(begun); n < 5 || took < time.Duration(n-1)*100*time.Millisecond {
		t.Errorf("opened %d times in %v", n, took)
	}
}

// Who loses a position opens a new stream: those too are at most one in the time set, once every
// stream there may be has lost its own.
func TestStreamsThatLoseTheirPositionAreHeldBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, devmongotest.URI(t), SourceConfig{MaxStreams: 3})
	s.source.cfg.MinReopen = 100 * time.Millisecond
	s.fail("alwaysOn", failing("getMore", 286))
	begun := time.Now()
	const n = 8
	for range n {
		stream, err := s.source.Open(t.Context(), change.Position{})
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Next(t.Context())
		}
		stream.Close()
		if !errors.Is(err, oplog.ErrPositionLost) {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < (n-1-3)*100*time.Millisecond {
		t.Errorf("opened %d times in %v", n, took)
	}
}

// A position that the oplog's range shows as lost costs the server no stream, and delays none:
// readers of what only the retained log has ask for one after the other.
func TestPositionsKnownToBeLostDelayNobody(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{MaxStreams: 1})
	lost := change.At(timeOf(server))
	s.insert(1, 2, 3)
	server.TruncateOplog(1)
	s.source.cfg.MinReopen = time.Hour
	before := server.Stats().ChangeStreamsOpened
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 4 {
		if _, err := s.source.Open(ctx, lost); !errors.Is(err, oplog.ErrPositionLost) {
			t.Fatal(err)
		}
	}
	if n := server.Stats().ChangeStreamsOpened - before; n > 0 {
		t.Errorf("%d streams were opened", n)
	}
}

func TestClosedStreamLeavesNothingOnTheServer(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	stream := s.open(change.Position{})
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Next(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	s.insert(1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stream.Close()
	if n := server.Stats().ChangeStreamsOpen; n != 0 {
		t.Errorf("%d change streams are left open", n)
	}
}

// A node that is stopped while it opens a stream leaves nothing, either.
func TestStreamThatIsClosedWhileItOpensLeavesNothingOnTheServer(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	s.source.cfg.MaxAwait = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	s.source.cfg.Guard = func(open func() error) error {
		cancel()
		return open()
	}
	before := server.Stats().ChangeStreamsOpened
	if _, err := s.source.Open(ctx, change.Position{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if stats := server.Stats(); stats.ChangeStreamsOpen != 0 || stats.ChangeStreamsOpened == before {
		t.Errorf("of %d change streams %d are left open", stats.ChangeStreamsOpened-before, stats.ChangeStreamsOpen)
	}
}

func TestDialTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	address := devmongotest.FreeAddress()
	standalone := devmongotest.Start(t, devmongo.Config{Standalone: true})
	for name, c := range map[string]struct {
		uri  string
		want fault.Code
	}{
		"nobody there":    {"mongodb://" + address + "/?replicaSet=rs0", fault.MongoUnreachable},
		"standalone":      {standalone.URI(), fault.MongoStandalone},
		"no URI":          {"http://" + address, fault.ConfigBadValue},
		"another set":     {devmongotest.Start(t, devmongo.Config{}).URI() + "x", fault.MongoReplicaSet},
		"unknown options": {"mongodb://" + address + "/?w=many&tls=perhaps", fault.ConfigBadValue},
	} {
		c2, err := mongodb.Dial(t.Context(), mongodb.Config{URI: c.uri, SelectionTimeout: 300 * time.Millisecond})
		if fault.Of(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			c2.Close()
		}
	}
}

func TestWatchReadsNothingElse(t *testing.T) {
	c := mongodbtest.Dial(t, devmongotest.URI(t))
	db, other := mongodbtest.Database(t, c), mongodbtest.Database(t, c)
	marks := mongodbtest.Database(t, c)
	w := Watch{Namespaces: []string{db + ".orders", other + ".carts", db + ".renamed"}, Operations: []string{"insert"}, Exclude: marks}
	source, err := NewSource(SourceConfig{Watch: w, MaxAwait: 50 * time.Millisecond}, c)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), change.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	insert := func(db, coll string) {
		if _, err := c.Driver().Database(db).Collection(coll).InsertOne(t.Context(), bson.D{{Key: "v", Value: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	insert(marks, "orders")
	insert(db, "orders")
	insert(db, "carts") // the pair that nobody asked for
	insert(other, "orders")
	insert(other, "carts")
	insert(db, "outside")
	if _, err := c.Driver().Database(db).Collection("orders").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 2}}}}); err != nil {
		t.Fatal(err)
	}
	rename := bson.D{{Key: "renameCollection", Value: db + ".outside"}, {Key: "to", Value: db + ".renamed"}}
	if err := c.Driver().Database("admin").RunCommand(t.Context(), rename).Err(); err != nil {
		t.Fatal(err)
	}
	insert(db, "orders")
	keeps := w.Keeps()
	var got []string
	for len(got) < 4 {
		reply, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range reply.Events {
			e, err := change.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if keeps(&e) {
				got = append(got, fmt.Sprintf("%s %s.%s", e.Op(), map[string]string{db: "db", other: "other"}[string(e.DB())], e.Coll()))
			}
		}
	}
	want := []string{"insert db.orders", "insert other.carts", "rename db.outside", "insert db.orders"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
}

func TestFingerprintNamesTheFilter(t *testing.T) {
	base := Watch{Namespaces: []string{"a.b", "c.*"}, Operations: []string{"insert"}}
	same := Watch{Namespaces: []string{"c.*", "a.b", "a.b"}, Operations: []string{"insert"}, FullDocument: "updateLookup"}
	if base.fingerprint(abilities{}) != same.fingerprint(abilities{}) {
		t.Error("the order of the namespaces changes the fingerprint")
	}
	for _, other := range []Watch{{}, {Namespaces: []string{"a.b"}}, {Namespaces: base.Namespaces}, {Namespaces: base.Namespaces, Operations: base.Operations, Exclude: "x"}} {
		if other.fingerprint(abilities{}) == base.fingerprint(abilities{}) {
			t.Errorf("%+v has the same fingerprint", other)
		}
	}
	for _, can := range []abilities{{split: true}, {database: "a"}} {
		if base.fingerprint(can) == base.fingerprint(abilities{}) {
			t.Errorf("%+v has the same fingerprint", can)
		}
	}
}

// FuzzWalk holds our walk against the driver's own decoder: the same answer, or the same refusal.
func FuzzWalk(f *testing.F) {
	event := func(d bson.D) []byte {
		b, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	token := bson.D{{Key: "_data", Value: "826B012B84000000052B022C0100296E5A10043EDE461E5F6964002B020004"}}
	f.Add(event(bson.D{
		{Key: "_id", Value: token}, {Key: "operationType", Value: "insert"}, {Key: "clusterTime", Value: bson.Timestamp{T: 1, I: 2}},
		{Key: "wallTime", Value: bson.DateTime(3)}, {Key: "ns", Value: bson.D{{Key: "db", Value: "d"}, {Key: "coll", Value: "c"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "a", Value: 1}}}}}, {Key: "txnNumber", Value: int64(4)},
		{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}}}},
	}))
	f.Add(event(bson.D{{Key: "documentKey", Value: 1}, {Key: "_id", Value: token}, {Key: "_id", Value: 5}, {Key: "to", Value: bson.D{}}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc := bson.Raw(raw)
		elements, driverErr := doc.Elements()
		if n, _, ok := readLength(raw); driverErr == nil && (!ok || n != len(raw)) {
			driverErr = errors.New("length") // the driver looks at the front of a longer slice
		}
		e, err := change.Parse(raw)
		_, hasToken := doc.Lookup("_id").DocumentOK()
		if driverErr != nil {
			if err == nil {
				t.Fatalf("the driver refuses what the walk accepts: %v", driverErr)
			}
			return
		}
		if err != nil {
			if firstIDIsDocument(elements) && !errors.Is(err, change.ErrEvent) {
				t.Fatalf("the walk refuses what the driver accepts: %v", err)
			}
			return
		}
		if !hasToken && !firstIDIsDocument(elements) && !anyIDIsDocument(elements) {
			t.Fatal("an event without a token is accepted")
		}
		if op, ok := doc.Lookup("operationType").StringValueOK(); ok && op != string(e.OpName()) {
			t.Fatalf("operation %q, driver %q", e.OpName(), op)
		}
		if db, ok := doc.Lookup("ns", "db").StringValueOK(); ok && db != string(e.DB()) {
			t.Fatalf("db %q, driver %q", e.DB(), db)
		}
		if key, ok := doc.Lookup("documentKey").DocumentOK(); ok {
			if !bytes.Equal(key, e.Key()) {
				t.Fatalf("key %x, driver %x", e.Key(), key)
			}
			if id, err := key.LookupErr("_id"); err == nil && !bytes.Equal(id.Value, e.ID().Data) {
				t.Fatalf("_id %x, driver %x", e.ID().Data, id.Value)
			}
		}
		if ts, i, ok := doc.Lookup("clusterTime").TimestampOK(); ok && (ts != 0 || i != 0) && e.Time() != (change.Timestamp{T: ts, I: i}) {
			t.Fatalf("time %v, driver %d:%d", e.Time(), ts, i)
		}
	})
}

func readLength(b []byte) (int, []byte, bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24, b[4:], true
}

func firstIDIsDocument(elements []bson.RawElement) bool {
	for _, e := range elements {
		if e.Key() == "_id" {
			return e.Value().Type == bson.TypeEmbeddedDocument
		}
	}
	return false
}

func anyIDIsDocument(elements []bson.RawElement) bool {
	for _, e := range elements {
		if e.Key() == "_id" && e.Value().Type == bson.TypeEmbeddedDocument {
			return true
		}
	}
	return false
}

// A quiet stream is answered after the configured wait.
func TestQuietStreamIsAnsweredAfterMaxAwait(t *testing.T) {
	t.Parallel()
	const wait = 1200 * time.Millisecond // the default is 1 s
	server := devmongotest.Start(t, devmongo.Config{})
	source, err := NewSource(SourceConfig{Watch: Watch{Namespaces: []string{"quiet.c"}}, MaxAwait: wait}, mongodbtest.Dial(t, server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), change.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	longest := time.Duration(0)
	for n := 0; n < 5 && longest < wait-20*time.Millisecond; n++ { // strangers may write
		begun := time.Now()
		if _, err := stream.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begun))
	}
	if longest < wait-20*time.Millisecond {
		t.Errorf("answered after %v at most", longest)
	}
}
