package stream

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/oplog"
)

// blind are the deployments whose oplog a client cannot look at.
func blind() map[string]func(*devmongo.Profile) {
	return map[string]func(*devmongo.Profile){
		"without the right to read local": func(p *devmongo.Profile) { p.DenyLocal = true },
		"through mongos":                  func(p *devmongo.Profile) { p.Mongos = true },
	}
}

// oneDatabase makes the streams of the scene watch its database only, as those of a user do who may
// not watch the cluster.
func (s *scene) oneDatabase() {
	s.Helper()
	s.fail(times(1), bson.D{{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: 13}, {Key: "appName", Value: "streamer"}})
	if err := s.source.Probe(s.Context()); err != nil || s.source.can.database == "" {
		s.Fatalf("%+v, %v", s.source.can, err)
	}
	if !s.client.Blind() {
		s.Fatal("the oplog can be looked at")
	}
}

// elsewhere lets the log move on by what the streams of one database do not show.
func (s *scene) elsewhere(n int) {
	s.Helper()
	other := s.client.Driver().Database("elsewhere").Collection("c")
	for range n {
		if _, err := other.InsertOne(s.Context(), bson.D{}); err != nil {
			s.Fatal(err)
		}
	}
}

// Whoever cannot look at the oplog opens streams by time. One that would bring the drop of the
// database again, and end with it again, is opened behind it.
func TestBlindStreamGoesOnBehindADroppedDatabase(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		for name, adjust := range blind() {
			t.Run(release+" "+name, func(t *testing.T) {
				server := devmongotest.Start(t, devmongo.Config{Release: release, Adjust: adjust})
				s := newScene(t, server.URI(), SourceConfig{})
				s.oneDatabase()
				stream := s.open(change.Position{})
				before := server.Stats().ChangeStreamsOpened
				s.insert(1)
				for round := range 3 {
					if err := s.coll.Database().Drop(t.Context()); err != nil {
						t.Fatal(err)
					}
					s.insert(fmt.Sprint("after drop ", round))
				}
				want := "[insert drop dropDatabase invalidate insert drop dropDatabase invalidate insert drop dropDatabase invalidate insert]"
				var ops []string
				for fmt.Sprint(ops) != want {
					for _, e := range s.read(stream, 1) {
						ops = append(ops, e.Op().String())
					}
					if len(ops) > 13 {
						t.Fatalf("saw %v", ops)
					}
				}
				// From the invalidate that a mark may stand at, too.
				again := s.open(change.At(timeOf(server)))
				s.insert("last")
				s.read(again, 1)
				if n := server.Stats().ChangeStreamsOpened - before; n > 20 { // each with what proves it, before and after the first reply
					t.Errorf("%d streams were opened", n)
				}
			})
		}
	}
}

func timeOf(s *devmongo.Server) change.Timestamp {
	return change.Timestamp{T: uint32(s.ClusterTime() >> 32), I: uint32(s.ClusterTime())}
}

// A blind stream that starts at the mark of an invalidate shows the drop again, once, and goes on.
func TestBlindStreamStartsAtAnInvalidate(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.DenyLocal = true }})
	s := newScene(t, server.URI(), SourceConfig{})
	s.oneDatabase()
	first := s.open(change.Position{})
	if err := s.coll.Database().Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.insert("after")
	invalidate := s.read(first, 3)[2].Position().Clone()
	stream := s.open(invalidate)
	var ops []string
	for len(ops) == 0 || ops[len(ops)-1] != "insert" {
		for _, e := range s.read(stream, 1) {
			ops = append(ops, e.Op().String())
		}
	}
	if fmt.Sprint(ops) != "[dropDatabase invalidate insert]" {
		t.Errorf("saw %v", ops)
	}
}

// What is lost while a blind stream is opened behind an invalidate is not passed over, though 4.4
// is silent about it.
func TestBlindStreamSeesALossBehindADroppedDatabase(t *testing.T) {
	var server *devmongo.Server
	var wraps atomic.Bool
	server = devmongotest.Start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) {
		p.DenyLocal = true
		p.BeforeReply = func(command, _ string) {
			if command == "getMore" && wraps.CompareAndSwap(true, false) {
				server.TruncateOplog(0)
			}
		}
	}})
	s := newScene(t, server.URI(), SourceConfig{})
	s.oneDatabase()
	stream := s.open(change.Position{})
	s.insert(1)
	s.read(stream, 1)
	if err := s.coll.Database().Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.insert("lost")
	wraps.Store(true) // as soon as the drop is answered
	s.read(stream, 3)
	s.elsewhere(2)
	s.seesTheLoss(stream, change.Timestamp{})
}

// seesTheLoss reads a stream whose position is lost, which must not tell of progress instead.
func (s *scene) seesTheLoss(stream oplog.Stream, from change.Timestamp) {
	s.Helper()
	for range 20 {
		reply, err := stream.Next(s.Context())
		if errors.Is(err, oplog.ErrPositionLost) {
			return
		}
		if err != nil || len(reply.Events) > 0 || reply.End.Time.Compare(from) > 0 {
			s.Fatalf("progress beyond a loss: %d events, %v, %v", len(reply.Events), reply.End, err)
		}
	}
	s.Fatal("the loss is not seen")
}

// After the driver has resumed by itself, at a token, 4.4 is silent about what it has lost. Whoever
// cannot look at the oplog opens the stream again by time, which the server checks.
func TestBlindStreamThatTheDriverHasResumedSeesALoss(t *testing.T) {
	for name, adjust := range blind() {
		t.Run(name, func(t *testing.T) {
			server := devmongotest.Start(t, devmongo.Config{Adjust: adjust})
			s := newScene(t, server.URI(), SourceConfig{})
			s.oneDatabase()
			stream := s.open(change.Position{})
			s.insert(1)
			at := s.read(stream, 1)[0].Position().Clone()
			s.insert("lost")
			s.elsewhere(5)
			s.fail(times(1), failing("getMore", 43))
			server.TruncateOplog(2)
			s.seesTheLoss(stream, at.Time)
		})
	}
}

// A large event costs a blind stream nothing that stands around it, and does not come again and
// again because streams are opened by time.
func TestBlindStreamMeetsALargeEvent(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{OplogBytes: 256 << 20, Adjust: func(p *devmongo.Profile) { p.Mongos = true }})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup", Operations: []string{"update"}}})
	ids := []string{longID("a"), longID("b"), longID("c"), longID("d")}
	for _, id := range ids {
		s.insert(id)
	}
	stream := s.open(change.Position{})
	before := server.Stats().ChangeStreamsOpened
	for i, id := range ids {
		value := []byte{1}
		if i == 2 {
			value = make([]byte, 9<<20)
		}
		if _, err := s.coll.UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: value}}}}); err != nil {
			t.Fatal(err)
		}
	}
	events := s.inOrder(stream, ids...)
	for id, e := range events {
		if incomplete(e) != (id == ids[2]) {
			t.Errorf("%.1s: incomplete %v", id, incomplete(e))
		}
	}
	if n := server.Stats().ChangeStreamsOpened - before; n > 4 {
		t.Errorf("%d streams were opened", n)
	}
	// From the large event itself, which an opening by time brings again.
	large := events[ids[2]]
	if e := s.inOrder(s.open(large.Position().Clone()), ids[2], ids[3])[ids[3]]; incomplete(e) {
		t.Error("what follows the large event is shown with less")
	}
}
