package devmongo_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// history is a collection whose oplog was cut after its first event.
type history struct {
	srv   *devmongo.Server
	c     watcher
	more  func()
	base  bson.Raw // high watermark before the event
	event bson.Raw // the event's token
	at    uint64   // its cluster time
	open  *stream  // stands behind the event
	quiet *stream  // of another collection; it never read anything
}

func lost(t *testing.T, release string) history {
	srv, client := start(t, devmongo.Config{Release: release})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	h := history{srv: srv, c: c}
	h.open, h.quiet = watch(t, c, nil), watch(t, client.Database("a").Collection("quiet"), nil)
	h.base = h.open.ResumeToken()
	insert(t, c, d("_id", 1))
	e := h.open.next()
	h.event, h.at = e.Lookup("_id").Document(), clusterTime(e)
	insert(t, client.Database("a").Collection("other"), d("_id", 1), d("_id", 2), d("_id", 3))
	srv.TruncateOplog(1)
	h.more = func() { insert(t, c, d()) }
	return h
}

func TestLostHistoryOn44(t *testing.T) {
	h := lost(t, "4.4")
	if got := h.open.fails(); got != 136 {
		t.Errorf("a stream that stood in the lost log fails with %d", got)
	}
	if got := h.quiet.fails(); got != 136 {
		t.Errorf("a quiet one fails with %d", got)
	}
	_, err := tryWatch(t, h.c, nil, startAt(h.at))
	wantCode(t, err, 286)
	_, err = tryWatch(t, h.c, nil, resumeAfter(h.base))
	wantCode(t, err, 286)

	silent := watch(t, h.c, nil, resumeAfter(h.event))
	silent.none()
	if string(silent.ResumeToken()) == string(h.event) {
		t.Error("the token of a silent stream moves on past the loss")
	}
	h.more()
	if got := silent.fails(); got != 280 {
		t.Errorf("the next event brings %d", got)
	}
	_, err = tryWatch(t, h.c, nil, startAfter(h.event))
	wantCode(t, err, 280)
	// With batch size 0 nothing is read while the stream opens: the first getMore fails.
	late := watch(t, h.c, nil, startAt(h.at), func(o *options.ChangeStreamOptionsBuilder) { o.SetBatchSize(0) })
	if got := late.fails(); got != 286 {
		t.Errorf("with batch size 0 the first getMore brings %d", got)
	}
}

func TestLostHistoryOn70(t *testing.T) {
	h := lost(t, "7.0")
	if got := h.open.fails(); got != 136 {
		t.Errorf("a stream that stood in the lost log fails with %d", got)
	}
	for name, from := range map[string]func(*options.ChangeStreamOptionsBuilder){
		"event": resumeAfter(h.event), "startAfter": startAfter(h.event), "high watermark": resumeAfter(h.base), "time": startAt(h.at),
	} {
		_, err := tryWatch(t, h.c, nil, from)
		if code(err) != 286 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStreamLosesItsPlaceWithTheEntryItSawLast(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	s := watch(t, c, nil)
	insert(t, c, d("_id", 1))
	s.next()
	insert(t, c, d("_id", 2))
	srv.TruncateOplog(1) // all that the stream has not seen is still there
	if got := s.fails(); got != 136 {
		t.Errorf("code %d", got)
	}
	kept := watch(t, c, nil)
	srv.TruncateOplog(1)
	kept.none()
}

// Servers below 5.0 want an entry before the start; an event's token of the first entry is found
// all the same.
func TestStartAtTheFirstEntry(t *testing.T) {
	for release, want := range map[string]int{"4.4": 286, "6.0": 0, "7.0": 0, "8.0": 0} {
		srv, client := start(t, devmongo.Config{Release: release})
		c := client.Database("a").Collection("x")
		insert(t, c, d("_id", 0))
		before := watch(t, c, nil)
		insert(t, c, d("_id", 1), d("_id", 2))
		event := before.next()
		srv.TruncateOplog(2)
		at := clusterTime(event)
		s, err := tryWatch(t, c, nil, startAt(at))
		wantCode(t, err, want)
		if want == 0 {
			equal(t, s.types(2), []string{"insert", "insert"})
		}
		equal(t, watch(t, c, nil, startAt(at+1)).types(1), []string{"insert"})
		equal(t, watch(t, c, nil, resumeAfter(event.Lookup("_id").Document())).types(1), []string{"insert"})
	}
}

func TestNewReplicaSetHasAllHistory(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	watch(t, client, nil, startAt(1<<32)).none()
	srv.TruncateOplog(0)
	_, err := tryWatch(t, client, nil, startAt(1<<32))
	wantCode(t, err, 286)
}

func TestTokenOfAnEventThatNeverWas(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		_, client := start(t, devmongo.Config{Release: release})
		c, other := client.Database("a").Collection("x"), client.Database("b").Collection("x")
		insert(t, c, d("_id", 0))
		insert(t, other, d("_id", 0))
		s, o := watch(t, c, nil), watch(t, other, nil)
		insert(t, c, d("_id", 1))
		insert(t, other, d("_id", 1))
		s.next()
		foreign := o.next().Lookup("_id").Document()
		insert(t, c, d("_id", 2))
		_, err := tryWatch(t, c, nil, resumeAfter(foreign))
		wantCode(t, err, 280)
	}
}

func TestMatchThatHidesTheTokensEvent(t *testing.T) {
	for release, want := range map[string]int{"4.4": 0, "7.0": 280} {
		_, client := start(t, devmongo.Config{Release: release})
		c := client.Database("a").Collection("x")
		insert(t, c, d("_id", 0))
		s := watch(t, c, []bson.D{d("$match", d("fullDocument.k", "x"))})
		mark := s.ResumeToken()
		insert(t, c, d("_id", 1, "k", "x"), d("_id", 2, "k", "y"))
		event := s.next().Lookup("_id").Document()
		other := []bson.D{d("$match", d("fullDocument.k", "y"))}
		resumed, err := tryWatch(t, c, other, resumeAfter(event))
		wantCode(t, err, want)
		if want == 0 {
			equal(t, resumed.types(1), []string{"insert"})
		}
		// A high watermark belongs to no pipeline.
		equal(t, watch(t, c, other, resumeAfter(mark)).types(1), []string{"insert"})
	}
}

func TestMajorityHeldBack(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	s := watch(t, c, nil)
	srv.HoldMajority(true)
	base := s.ResumeToken()
	insert(t, c, d("_id", 1))
	s.none()
	if string(s.ResumeToken()) != string(base) {
		t.Error("the token overtakes the majority")
	}
	hello := run(t, client, "admin", d("hello", 1)).Lookup("lastWrite").Document()
	at, _ := hello.Lookup("opTime", "ts").Timestamp()
	ai := hello.Lookup("opTime", "ts")
	mi := hello.Lookup("majorityOpTime", "ts")
	if at == 0 || ai.Equal(mi) {
		t.Errorf("hello does not tell no majority from idle: %s", hello)
	}
	// A write that wants the majority waits for it.
	slow := client.Database("a").RunCommand(t.Context(), d("insert", "x", "documents", bson.A{d("_id", 2)}, "writeConcern", d("w", "majority", "wtimeout", 20)))
	var we mongo.WriteException
	if !errors.As(slow.Err(), &we) || we.WriteConcernError == nil || we.WriteConcernError.Code != 64 {
		t.Errorf("a majority write while the majority is held: %v", slow.Err())
	}
	srv.HoldMajority(false)
	equal(t, s.types(2), []string{"insert", "insert"})
}
