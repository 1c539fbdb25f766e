package wiring

import (
	"fmt"
	"testing"
	"time"

	"mongostream/fault"
	"mongostream/health"
	"mongostream/internal/devmongo"
	"mongostream/notice"
)

// Every error that a change stream can meet, through the whole node: what it makes of it, and what it tells of it.
func TestErrorsOfChangeStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		code   int
		opened int // openings of streams at most: where the tail begins anew, its lanes catch up through a stream of their own
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
			r.fail(times(1), c.code, "getMore")
			after := r.series(20, 40)
			n.sees(after...)
			n.goesOn()
			n.once(append(before, after...)...)
			stats := r.server.Stats()
			if opened := int(stats.ChangeStreamsOpened - streams); opened < 1 || opened > c.opened {
				t.Errorf("%d streams were opened", opened)
			}
			for _, name := range []string{"streamer_gaps_detected_total", "streamer_history_lost_total", "streamer_duplicate_events_total"} {
				if got := n.metric(name); got != 0 {
					t.Errorf("%s is %v", name, got)
				}
			}
			if len(n.notices()) != 0 || len(n.gaps()) != 0 || len(n.posted(notice.Resync)) != 0 {
				t.Errorf("%d notices, %d gaps", len(n.notices()), len(n.gaps()))
			}
			n.until("every partition is well, on one stream", func() bool {
				for _, s := range n.status() {
					if s.State != health.Healthy && s.State != health.Idle {
						return false
					}
				}
				return r.server.Stats().ChangeStreamsOpen == 1
			})
			if more := r.server.Stats().ConnectionsOpen - connections; more > 3 {
				t.Errorf("%d connections more than before", more)
			}
		})
	}
}

// What a person must act upon ends the node at once, with the code that tells why, and marks nothing that was not delivered.
func TestErrorsThatEndTheNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		want fault.Code
	}{
		{13, fault.MongoUnauthorized},
		{18, fault.MongoUnauthorized},
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
			r.fail("alwaysOn", c.code, "getMore", "aggregate")
			r.series(0, 20)
			<-n.ended
			if fault.Of(n.err) != c.want {
				t.Errorf("ended with %v", n.err)
			}
			if again := r.server.Stats().ChangeStreamsOpened - opened; again > 1 {
				t.Errorf("opened %d times again", again)
			}
			r.heal()
			next := r.begin()
			next.until("all has arrived", func() bool { return len(missing(append(n.ids(), next.ids()...), idsUpTo(20))) == 0 })
			if len(next.notices()) != 0 || len(next.gaps()) != 0 {
				t.Errorf("%d notices, %d gaps", len(next.notices()), len(next.gaps()))
			}
		})
	}
}

func idsUpTo(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}
