package node

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// Every error that a change stream can meet, through the whole node: what it makes of it, and what
// it tells of it.
func TestErrorsOfChangeStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		code   int
		opened int // openings of streams at most: where the tail begins anew, sessions may catch up through a stream of their own
	}{
		{name: "cursor not found", code: 43, opened: 1},
		{name: "query plan killed", code: 175, opened: 1},
		{name: "capped position lost, and found again", code: 136, opened: 3},
		{name: "snapshot or cursor of a rollback", code: 234, opened: 1},
		{name: "shutdown in progress", code: 91, opened: 1},
		{name: "primary stepped down", code: 189, opened: 1},
		{name: "interrupted at shutdown", code: 11600, opened: 1},
		{name: "interrupted by an election", code: 11602, opened: 1},
		{name: "not the primary", code: 10107, opened: 1},
		{name: "not the primary, no secondary", code: 13435, opened: 1},
		{name: "neither primary nor secondary", code: 13436, opened: 1},
		{name: "broken connection", code: 0, opened: 1},
		{name: "no known meaning, once", code: 4711, opened: 1},
		{name: "history lost, and found again", code: 286, opened: 3},
		{name: "shard removed, and found again", code: 464, opened: 3},
		{name: "oplog entry missing, and found again", code: 326, opened: 3},
		{name: "token not found", code: 280, opened: 1},
		{name: "token unusable", code: 260, opened: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{NoopEvery: 100 * time.Millisecond})
			n := r.begin()
			before := r.series(0, 20)
			n.sees(before...)
			streams, connections := r.server.Stats().ChangeStreamsOpened, r.server.Stats().ConnectionsOpen
			counted, states := n.metric("streamer_mongodb_streams_opened_total"), n.watchStates()
			r.fail(times(1), c.code, "getMore")
			after := r.series(20, 40)
			n.sees(after...)
			n.goesOn()
			n.once(append(before, after...)...)
			stats := r.server.Stats()
			if opened := int(stats.ChangeStreamsOpened - streams); opened < 1 || opened > c.opened {
				t.Errorf("%d streams were opened", opened)
			}
			if more := n.metric("streamer_mongodb_streams_opened_total") - counted; more < 1 || int(more) > c.opened {
				t.Errorf("%v streams were counted", more)
			}
			for _, name := range []string{"streamer_log_losses_total", "streamer_duplicate_events_total"} {
				if got := n.metric(name); got != 0 {
					t.Errorf("%s is %v", name, got)
				}
			}
			n.until("every partition is well, on one stream", func() bool {
				for _, s := range n.status() {
					if s.State != health.Healthy && s.State != health.Idle {
						return false
					}
				}
				return r.server.Stats().ChangeStreamsOpen == 1
			})
			for state := range states() {
				if state != health.Healthy && state != health.Idle {
					t.Errorf("a partition was %s meanwhile", state)
				}
			}
			n.saysNothing()
			if more := r.server.Stats().ConnectionsOpen - connections; more > 3 {
				t.Errorf("%d connections more than before", more)
			}
		})
	}
}

// What a person must act upon ends the node at once, with the code that tells why, and saves
// nothing that was not delivered.
func TestErrorsThatEndTheNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		want fault.Code
	}{
		{13, fault.MongoUnauthorized},
		{40573, fault.MongoStandalone},
		{9, fault.LogTokenRefused},
		{40647, fault.LogTokenRefused},
		{40648, fault.LogTokenRefused},
		{40649, fault.LogTokenRefused},
		{50811, fault.LogTokenRefused},
		{47, fault.MongoRefused}, // no image was asked for, so none can be missing
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{})
			n := r.begin()
			n.goesOn()
			opened := r.server.Stats().ChangeStreamsOpened
			failures := n.metric("streamer_mongodb_stream_failures_total")
			r.fail("alwaysOn", c.code, "getMore", "aggregate")
			r.series(0, 20)
			<-n.ended
			if n.metric("streamer_mongodb_stream_failures_total") <= failures {
				t.Error("the failure is not counted")
			}
			n.saysNothing()
			if fault.Of(n.err) != c.want {
				t.Errorf("ended with %v", n.err)
			}
			if again := r.server.Stats().ChangeStreamsOpened - opened; again > 1 {
				t.Errorf("opened %d times again", again)
			}
			r.heal()
			next := r.begin()
			next.until("all has arrived", func() bool { return len(missing(append(n.ids(), next.ids()...), idsUpTo(20))) == 0 })
			if len(next.losses()) != 0 || len(next.gaps()) != 0 {
				t.Errorf("%d losses, %d gaps", len(next.losses()), len(next.gaps()))
			}
		})
	}
}

// Where a document is required that MongoDB does not have, the event comes without it, after one
// opening, and nothing is told as lost.
func TestMissingImageThroughTheWholeNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{Release: "7.0"}, "STREAMER_MONGODB_FULL_DOCUMENT=required")
	n := r.begin()
	n.sees(r.series(0, 20)...)
	streams, states := r.server.Stats().ChangeStreamsOpened, n.watchStates()
	if _, err := r.coll("orders").UpdateByID(t.Context(), 7, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}); err != nil {
		t.Fatal(err)
	}
	n.until("the update arrives", func() bool { return n.count("update") == 1 })
	n.goesOn()
	if opened := r.server.Stats().ChangeStreamsOpened - streams; opened != 1 {
		t.Errorf("%d streams were opened", opened)
	}
	if missing := n.metric("streamer_mongodb_images_missing_total"); missing != 1 {
		t.Errorf("%v images are counted as missing", missing)
	}
	for state := range states() {
		if state != health.Healthy && state != health.Idle {
			t.Errorf("a partition was %s meanwhile", state)
		}
	}
	n.saysNothing()
}

// A tail that begins anew leaves sessions to a catch-up, which comes up to the tail as soon as the
// log moves, by whatever entry: until then two streams are open on a log in which nothing happens,
// and both would tell what does.
func TestTailThatBeganAnewOnAQuietLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.begin()
	n.sees(r.series(0, 20)...)
	opened := r.server.Stats().ChangeStreamsOpened
	r.fail(times(1), 286, "getMore")
	n.until("the tail has begun anew", func() bool { return r.server.Stats().ChangeStreamsOpened-opened >= 1 && n.service.Log().Stats().Open })
	if open := r.server.Stats().ChangeStreamsOpen; open > 2 {
		t.Errorf("%d streams are open", open)
	}
	r.elsewhere(1) // MongoDB itself writes something every ten seconds
	n.until("one stream is left", func() bool { return r.server.Stats().ChangeStreamsOpen == 1 })
	n.goesOn()
	n.once(idsUpTo(20)...)
	n.saysNothing()
}

// saysNothing fails the test where a loss was recorded or told, or operators were told anything but
// that MongoDB was away, which it may have been for long enough on a slow machine.
func (n *live) saysNothing() {
	n.Helper()
	posted, _ := n.service.Board().Since(0)
	posted = slices.DeleteFunc(posted, func(p notice.Notice) bool { return p.Fields["subject"] == health.SubjectMongoDB })
	if len(n.losses()) != 0 || len(n.gaps()) != 0 || len(posted) != 0 {
		n.Errorf("%d losses, %d gaps, operators were told %v", len(n.losses()), len(n.gaps()), posted)
	}
}

// watchStates notes the states in which partitions are, as often as it can, and returns what ends
// that and tells them.
func (n *live) watchStates() func() map[health.Status]bool {
	seen := make(map[health.Status]bool)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for {
			for _, s := range n.service.Node().Status() {
				seen[s.State] = true
			}
			select {
			case <-look.C:
			case <-ended:
				return
			}
		}
	}()
	stop := sync.OnceFunc(func() { close(ended) })
	n.Cleanup(stop)
	return func() map[health.Status]bool {
		stop()
		<-done
		return seen
	}
}

func idsUpTo(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}
