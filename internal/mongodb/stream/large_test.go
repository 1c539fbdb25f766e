package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/devmongo"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
)

// large writes a document whose update is an event above 16 MiB when the full document comes with it, between two small changes.
func (s *scene) large(size int) []byte {
	s.Helper()
	text := make([]byte, size)
	_, _ = rand.Read(text)
	s.insert("before")
	if _, err := s.coll.InsertOne(s.Context(), bson.D{{Key: "_id", Value: "large"}}); err != nil {
		s.Fatal(err)
	}
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: text}}}}
	if _, err := s.coll.UpdateByID(s.Context(), "large", update); err != nil {
		s.Fatal(err)
	}
	s.insert("after")
	return text
}

func TestLargeEventIsPutTogetherFromItsFragments(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup"}})
	if !s.source.can.split {
		t.Fatal("the probe does not see that the server splits")
	}
	stream := s.open(change.Position{})
	text := s.large(9 << 20)
	events := s.read(stream, 4)
	e := events[2]
	if e.Op() != change.OpUpdate || string(e.ID().Text()) != "large" || e.Lookup("splitEvent").Type != 0 {
		t.Fatalf("%v of %q", e.Op(), e.ID().Text())
	}
	full := e.Lookup("fullDocument").Lookup("a").Data
	updated := e.Lookup("updateDescription").Lookup("updatedFields").Lookup("a").Data
	if !bytes.Contains(full, text) || !bytes.Contains(updated, text) {
		t.Errorf("fields of %d and %d bytes", len(full), len(updated))
	}
	if string(events[3].ID().Text()) != "after" || !events[3].Position().After(e.Position()) {
		t.Errorf("then comes %q", events[3].ID().Text())
	}
	// Whoever resumes behind the event does not see any of it again.
	if again := s.read(s.open(e.Position()), 1); string(again[0].ID().Text()) != "after" {
		t.Errorf("behind the event comes %q", again[0].ID().Text())
	}
}

// A stream that breaks between the fragments begins again with the first: no progress is told before the event is whole.
func TestBrokenBetweenFragmentsBeginsWithTheFirst(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup"}})
	open := s.open(change.Position{})
	st, _ := open.(*stream)
	text := s.large(12 << 20) // two fragments of which no reply holds both
	s.read(open, 2)
	before := st.position
	for !st.parts.Pending() {
		reply, err := open.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(reply.Events) > 0 || reply.End.After(before) {
			t.Fatalf("%d events and progress to %v with half an event", len(reply.Events), reply.End)
		}
	}
	if st.position.Compare(before) != 0 {
		t.Errorf("the position has moved to %v", st.position)
	}
	server.DropConnections()
	e := s.read(open, 1)[0]
	if !bytes.Contains(e.Lookup("fullDocument").Lookup("a").Data, text) {
		t.Errorf("%v of %d bytes", e.Op(), len(e.Raw()))
	}
}

// Without fragments the event comes with less; the stream goes on and shows the whole of what follows.
func TestLargeEventComesWithLessWhereItCannotBeSplit(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "4.4"})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup"}})
	if s.source.can.split {
		t.Fatal("the probe sees a server that splits")
	}
	stream := s.open(change.Position{})
	s.large(9 << 20)
	if _, err := s.coll.UpdateByID(t.Context(), "before", bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var last change.Event
	var at change.Position
	for len(seen) < 5 {
		for _, e := range s.read(stream, 1) {
			if !e.Position().After(at) {
				continue // what a reopened stream repeats is dropped by position
			}
			at = e.Position().Clone()
			seen[fmt.Sprintf("%v %s", e.Op(), e.ID().Text())]++
			last = e
			if string(e.ID().Text()) == "large" && e.Op() == change.OpUpdate && (!e.Lookup("updateDescription").IsZero() || e.Lookup("fullDocument").IsZero()) {
				t.Error("the large event has its description, or not its document")
			}
		}
	}
	if seen["update large"] != 1 || seen["update before"] != 1 {
		t.Errorf("saw %v", seen)
	}
	if last.Lookup("updateDescription").IsZero() {
		t.Error("what follows is shown without its description too")
	}
}

// An event that does not fit whatever is left out is stepped over, and its place is told.
func TestEventThatNeverFitsIsSteppedOver(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{})
	s := newScene(t, server.URI(), SourceConfig{})
	stream := s.open(change.Position{})
	s.insert(1)
	position := s.read(stream, 1)[0].Position().Clone()
	s.insert(2, 3)
	poison := s.read(s.open(position), 1)[0]
	token := bson.Raw(poison.Token()).Lookup("_data").StringValue()
	st, _ := stream.(*stream_)
	st.view = keysOnly
	reply, err := st.less(fmt.Errorf(`BSONObj size: 18874718 (0x120015E) is invalid. Size must be between 0 and 16793600(16MB) First element: _id: { _data: "%s" }`, token))
	if err != nil || reply == nil {
		t.Fatalf("%v, %v", reply, err)
	}
	e, err := change.Parse(reply.Events[0])
	if err != nil || e.Op() != change.OpSkipped || e.Position().Compare(poison.Position()) != 0 || reply.End.Compare(poison.Position()) != 0 {
		t.Errorf("%v at %v, %v", e.Op(), e.Position(), err)
	}
	st.close()
	if got := s.read(stream, 1)[0]; got.ID().Data[0] != 3 {
		t.Errorf("then comes %v", got.ID())
	}
	st.view = keysOnly
	if _, err := st.less(fmt.Errorf("too large, and no word of which")); err == nil {
		t.Error("an unknown event was stepped over")
	}
}

type stream_ = stream //nolint:revive // the test's variable has the type's name

func TestProbeFindsWhatTheUserMayDo(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{})
	denied := bson.D{{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: 13}}
	s.fail("alwaysOn", denied)
	if err := s.source.Probe(t.Context()); fault.Of(err) != fault.MongoUnauthorized {
		t.Errorf("without any right: %v", err)
	}
	s.fail(times(1), denied) // the cluster, but not the database
	if err := s.source.Probe(t.Context()); err != nil || s.source.can.database != s.coll.Database().Name() {
		t.Fatalf("with the right to one database: %+v, %v", s.source.can, err)
	}
	stream := s.open(change.Position{})
	s.insert(1)
	if e := s.read(stream, 1)[0]; e.Op() != change.OpInsert {
		t.Errorf("%v", e.Op())
	}
	// A database stream ends when its database is dropped; ours goes on behind that.
	if err := s.coll.Database().Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.insert(2)
	var ops []string
	for len(ops) == 0 || ops[len(ops)-1] != "insert" {
		for _, e := range s.read(stream, 1) {
			ops = append(ops, e.Op().String())
		}
	}
	if fmt.Sprint(ops) != "[drop dropDatabase invalidate insert]" {
		t.Errorf("saw %v", ops)
	}
}

// A transaction of more than 16 MiB is several entries of the log; all its events share one time and come once each.
func TestLargeTransaction(t *testing.T) {
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	stream := s.open(change.Position{})
	session, err := s.client.Driver().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	text := make([]byte, 1<<20)
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for i := range 24 {
			if _, err := s.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: i}, {Key: "a", Value: text}}); err != nil {
				return nil, err
			}
		}
		return nil, nil //nolint:nilnil // nothing to return
	})
	if err != nil {
		t.Fatal(err)
	}
	events := s.read(stream, 24)
	for i := 1; i < 24; i++ {
		if events[i].Time() != events[0].Time() || !events[i].Position().After(events[i-1].Position()) {
			t.Errorf("event %d: %v after %v", i, events[i].Position(), events[i-1].Position())
		}
	}
	if again := s.read(s.open(events[11].Position()), 12); again[0].Position().Compare(events[12].Position()) != 0 {
		t.Errorf("resumed inside the transaction at %v", again[0].Position())
	}
}
