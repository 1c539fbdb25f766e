package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog"
)

// large writes a document whose update is an event above 16 MiB when the full document comes with
// it, between two small changes.
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

// A stream that breaks between the fragments begins again with the first: no progress is told
// before the event is whole.
func TestBrokenBetweenFragmentsBeginsWithTheFirst(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup"}})
	open := s.open(change.Position{})
	st, _ := open.(*stream)
	text := s.large(12 << 20) // two fragments of which no reply holds both
	s.read(open, 2)
	before := st.position
	for !st.parts.pending {
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

// Without fragments the event comes with less; the stream goes on and shows the whole of what
// follows.
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

// inOrder reads events until the last of the ids has come, each once, and returns them by id. What
// a reopened stream repeats is left out by its position, as the lane does.
func (s *scene) inOrder(stream oplog.Stream, ids ...string) map[string]change.Event {
	s.Helper()
	events := make(map[string]change.Event)
	var at change.Position
	for next := 0; next < len(ids); {
		for _, e := range s.read(stream, 1) {
			if !e.Position().After(at) {
				continue
			}
			at = e.Position().Clone()
			id := string(e.ID().Text())
			if e.Op() == change.OpSkipped {
				id = "skipped"
			}
			if next == len(ids) || id != ids[next] {
				s.Fatalf("%v %q comes as number %d of %q", e.Op(), id, next, ids)
			}
			events[id] = e
			next++
		}
	}
	return events
}

func incomplete(e change.Event) bool {
	return bson.Raw(e.Raw()).Lookup(Incomplete).Type == bson.TypeBoolean
}

// longID makes an _id whose token is longer than what servers show of it in messages.
func longID(name string) string { return name + strings.Repeat("-", 120) }

// An event of which one field alone is larger than a fragment may be cannot be split. It comes with
// its keys only, and the stream goes on.
func TestEventThatCannotBeSplitComesWithItsKeys(t *testing.T) {
	for _, release := range []string{"6.0", "7.0", "8.0"} {
		t.Run(release, func(t *testing.T) {
			server := devmongotest.Start(t, devmongo.Config{Release: release, OplogBytes: 256 << 20})
			s := newScene(t, server.URI(), SourceConfig{})
			stream := s.open(change.Position{})
			s.insert("a", "b")
			id := strings.Repeat("k", 5<<10)
			if _, err := s.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "p", Value: make([]byte, 16<<20-len(id)-64)}}); err != nil {
				t.Fatal(err)
			}
			s.insert("c", "d")
			events := s.inOrder(stream, "a", "b", id, "c", "d")
			for name, e := range events {
				if less := name == id; incomplete(e) != less || e.Lookup("fullDocument").IsZero() != less {
					t.Errorf("%.10s: incomplete %v, with its document %v", name, incomplete(e), !e.Lookup("fullDocument").IsZero())
				}
			}
		})
	}
}

// Only the event that is too large loses something, and says so, wherever it stands in its batch
// and whether or not the server's message names it. The stream is opened a few times for it.
func TestLargeEventLeavesItsBatchWhole(t *testing.T) {
	for _, release := range []string{"4.4", "6.0"} {
		t.Run(release, func(t *testing.T) {
			server := devmongotest.Start(t, devmongo.Config{
				Release: release, OplogBytes: 256 << 20, Adjust: func(p *devmongo.Profile) { p.SplitsEvents = false }, // before 6.0.9
			})
			s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup", Operations: []string{"update"}}})
			var ids []string
			for i := range 20 {
				ids = append(ids, longID(fmt.Sprint(i)))
				s.insert(ids[i])
			}
			stream := s.open(change.Position{})
			before := server.Stats().ChangeStreamsOpened
			for i, id := range ids {
				value := []byte{1}
				if i == 11 {
					value = make([]byte, 9<<20)
				}
				if _, err := s.coll.UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: value}}}}); err != nil {
					t.Fatal(err)
				}
			}
			for id, e := range s.inOrder(stream, ids...) {
				less := id == ids[11]
				if e.Lookup("updateDescription").IsZero() != less || incomplete(e) != less || e.Lookup("fullDocument").IsZero() {
					t.Errorf("%.3s: description %v, incomplete %v, document %v", id, !e.Lookup("updateDescription").IsZero(), incomplete(e), !e.Lookup("fullDocument").IsZero())
				}
			}
			if n := server.Stats().ChangeStreamsOpened - before; n > 4 {
				t.Errorf("opened anew %d times", n)
			}
		})
	}
}

// Several large events, next to each other too.
func TestLargeEventsBesideEachOther(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "4.4", OplogBytes: 512 << 20})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "updateLookup", Operations: []string{"update"}}})
	ids := []string{longID("a"), longID("b"), longID("c"), longID("d"), longID("e")}
	for _, id := range ids {
		s.insert(id)
	}
	stream := s.open(change.Position{})
	for i, id := range ids {
		value := make([]byte, 9<<20)
		if i == 0 || i == 3 {
			value = value[:1]
		}
		if _, err := s.coll.UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: value}}}}); err != nil {
			t.Fatal(err)
		}
	}
	for id, e := range s.inOrder(stream, ids...) {
		if less := id != ids[0] && id != ids[3]; incomplete(e) != less {
			t.Errorf("%.1s: incomplete %v", id, incomplete(e))
		}
	}
}

// An event of whose key alone there is no room is stepped over in its place: nothing that stands
// around it is left out, though servers do not show its whole token.
func TestEventWithoutRoomForItsKeyIsSteppedOver(t *testing.T) {
	for _, c := range []struct {
		release string
		key     int // bytes; the token takes twice as many
	}{{"4.4", 9 << 20}, {"4.4", 6 << 20}, {"7.0", 9 << 20}, {"7.0", 6 << 20}} {
		t.Run(fmt.Sprint(c.release, " ", c.key), func(t *testing.T) {
			server := devmongotest.Start(t, devmongo.Config{Release: c.release, OplogBytes: 512 << 20})
			s := newScene(t, server.URI(), SourceConfig{})
			stream := s.open(change.Position{})
			s.insert("a", "b", strings.Repeat("k", c.key), "c", "d")
			events := s.inOrder(stream, "a", "b", "skipped", "c", "d")
			skipped := events["skipped"]
			// Whoever resumes there misses nothing, and does not meet the event again.
			s.inOrder(s.open(skipped.Position().Clone()), "c", "d")
		})
	}
}

// What of a transaction follows the event that is stepped over cannot be told from it and is left
// out with it; nothing else is.
func TestRestOfATransactionIsSteppedOverToo(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0", OplogBytes: 512 << 20})
	s := newScene(t, server.URI(), SourceConfig{})
	stream := s.open(change.Position{})
	session, err := s.client.Driver().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for _, id := range []string{"a", strings.Repeat("k", 9<<20), "b"} {
			if _, err := s.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
				return nil, err
			}
		}
		return nil, nil //nolint:nilnil // nothing to return
	})
	if err != nil {
		t.Fatal(err)
	}
	s.insert("c")
	events := s.inOrder(stream, "a", "skipped", "c")
	a, skipped := events["a"], events["skipped"]
	if skipped.Time() != a.Time().Next() {
		t.Errorf("the transaction is of %v, what is stepped over ends at %v", a.Time(), skipped.Time())
	}
}

func TestLadder(t *testing.T) {
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	event := func(i uint32) *change.Event {
		e, err := change.Parse(changetest.Event{ID: int64(i), Time: at(i)}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return &e
	}
	l := ladder{}.fails(at(5))
	if l.view != alone || l.until != at(5) || !l.view.one() || l.view.less() {
		t.Fatalf("first %+v", l)
	}
	for i := uint32(1); i < 4; i++ {
		if !l.gives(event(i)) {
			t.Fatalf("event %d is not handed out", i)
		}
		l = l.next(100, at(i))
	}
	for name, up := range map[string]ladder{
		"behind what is too large":  l.next(100, at(6)),
		"behind a reply's length":   l.next(mostBefore, at(4)),
		"of an unknown time, after": ladder{view: alone, budget: 10}.next(10, at(1)),
	} {
		if up.view != whole {
			t.Errorf("%s: %+v", name, up)
		}
	}
	for _, want := range []view{noDescription, keysOnly, nameOnly, stepOver, stepOver} {
		if l = l.fails(change.Timestamp{}); l.view != want || !l.view.less() {
			t.Fatalf("%+v, want %v", l, want)
		}
	}
	l = ladder{view: noDescription, seen: event(3).Position()}
	for i := uint32(1); i < 5; i++ { // an opening by time repeats; the fourth is the large one
		if !l.gives(event(i)) || l.next(100, at(i)).view != noDescription {
			t.Errorf("event %d: %+v", i, l)
		}
	}
	if l.gives(event(5)) || l.large != at(4) {
		t.Errorf("what is later is shown with less: %+v", l)
	}
	if up := l.next(0, at(5)); up.view != alone || up.budget != nearby {
		t.Errorf("behind the large event: %+v", up)
	}
}

func TestTimeOfWhatIsTooLarge(t *testing.T) {
	const token = "826B012BA0000000012B022C0100296E5A1004B2A8DA0207464C6D8C49DE61D34AF64F463C5F6964003C626967000004"
	want := change.Timestamp{T: 0x6B012BA0, I: 1}
	for message, want := range map[string]change.Timestamp{
		`First element: _id: { _data: "` + token + `" }`:        want,
		`First element: _id: { _data: \"` + token + `\" }`:      want, // as quoted by whoever passes it on
		`First element: _id: { _data: "` + token + `..." }`:     want,
		`{_data: "` + token + `", _typeBits: BinData(0, 4202)}`: want,
		`First element: txnNumber: 2`:                           {},
		`_data: "82"`:                                           {},
		``:                                                      {},
	} {
		err := errors.New(message)
		if got := timeIn(err); got != want {
			t.Errorf("%s: %v", message, got)
		}
		if text := (discreet{err}).Error(); strings.Contains(text, token[30:]) {
			t.Errorf("shown: %s", text)
		}
	}
}

// A server that says of every event that it is too large, and of none which it is, ends the stream
// with a word to a person.
func TestPoisonThatNobodyNames(t *testing.T) {
	s := newScene(t, devmongotest.URI(t), SourceConfig{})
	for _, code := range []int{10334, 7182500} {
		stream := s.open(change.Position{})
		s.insert(code)
		s.fail("alwaysOn", failing("getMore", code))
		var err error
		for err == nil {
			_, err = stream.Next(t.Context())
		}
		s.fail("off", nil)
		if fault.Of(err) != fault.LogPoisonEvent {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// Where the driver resumes between two fragments the server may split the event differently: the
// event is read again from its beginning.
func TestSplitsThatVaryAreReadAgain(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{
		Release: "7.0", OplogBytes: 512 << 20, Adjust: func(p *devmongo.Profile) { p.SplitsVary = true },
	})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "required", BeforeChange: "required"}})
	create := bson.D{{Key: "collMod", Value: "c"}, {Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}}}
	if err := s.coll.Database().RunCommand(t.Context(), create).Err(); err != nil {
		t.Fatal(err)
	}
	texts := [2][]byte{make([]byte, 7<<20), make([]byte, 7<<20)}
	for i := range texts {
		_, _ = rand.Read(texts[i])
	}
	if _, err := s.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "large"}, {Key: "a", Value: texts[0]}}); err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		open := s.open(change.Position{})
		st, _ := open.(*stream)
		if _, err := s.coll.UpdateByID(t.Context(), "large", bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: texts[(round+1)%2]}}}}); err != nil {
			t.Fatal(err)
		}
		after := fmt.Sprint("after", round)
		s.insert(after)
		for !st.parts.pending {
			if _, err := open.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.fail(times(1), failing("getMore", 43))
		events := s.inOrder(open, "large", after)
		e := events["large"]
		if !bytes.Contains(e.Lookup("fullDocument").Lookup("a").Data, texts[(round+1)%2]) ||
			!bytes.Contains(e.Lookup("fullDocumentBeforeChange").Lookup("a").Data, texts[round%2]) ||
			!bytes.Contains(e.Lookup("updateDescription").Lookup("updatedFields").Lookup("a").Data, texts[(round+1)%2]) || incomplete(e) {
			t.Errorf("round %d: the event has %d bytes", round, len(e.Raw()))
		}
		open.Close()
	}
}

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

// A transaction of more than 16 MiB is several entries of the log; all its events share one time
// and come once each.
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
