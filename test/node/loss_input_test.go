package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gap"
)

// A clock that jumps by an hour, forward or back, is no gap, also where the stream breaks in it:
// the position is known to be in the log.
func TestClockThatJumpsAnHour(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprint(jump, " broken ", broken), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, devmongo.Config{})
				n := r.begin()
				before := r.series(0, 20)
				n.sees(before...)
				if broken {
					r.fail(times(1), 91, "getMore")
				}
				r.server.SetClockOffset(jump)
				after := r.series(20, 40)
				n.sees(after...)
				r.server.SetClockOffset(0)
				last := r.series(40, 60)
				n.sees(last...)
				n.once(append(append(before, after...), last...)...)
				if len(n.gaps()) != 0 || len(n.losses()) != 0 || n.metric("streamer_log_losses_total") != 0 {
					t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
				}
				if jumps := n.metric("streamer_log_jumps_total"); (jumps > 0) != (jump > 0) {
					t.Errorf("%v jumps of cluster time counted", jumps)
				}
				n.stopped()
				next := r.begin()
				next.goesOn()
				if len(next.ids()) != 1 || len(next.losses()) != 0 {
					t.Errorf("after a restart %d events, %d losses", len(next.ids()), len(next.losses()))
				}
			})
		}
	}
}

// An _id of 1 MB makes tokens of 1 MB; a composite one makes tokens that need their type bits. Both
// are saved and resumed after.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]any{
		"1 MB":      strings.Repeat("x", 1<<20),
		"composite": bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: int64(1)}, {Key: "c", Value: bson.A{"x", bson.D{{Key: "d", Value: nil}}}}},
		"decimal":   bson.D{{Key: "price", Value: bson.NewDecimal128(0x3040000000000000, 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: "4.4"})
			n := r.begin()
			n.sees(r.series(0, 20)...)
			r.insert(id)
			n.until("the event arrives", func() bool { return len(n.ids()) == 21 })
			// What stands first behind it, in each partition, shows where the node goes on.
			n.stopped()
			behind := r.series(100, 140)
			next := r.begin()
			next.sees(behind...)
			next.once(behind...)
			// A token above 16 KiB is kept as its time only, so that its event may come again.
			most := len(behind)
			if name == "1 MB" {
				most++
			}
			if again := len(next.ids()); again > most || len(next.gaps()) != 0 || len(next.losses()) != 0 {
				t.Errorf("%d events after the restart, %d gaps", again, len(next.gaps()))
			}
			// The streams resume behind its token too, when they break right there.
			r.fail(times(1), 189, "getMore", "aggregate")
			if _, err := r.coll("orders").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}); err != nil {
				t.Fatal(err)
			}
			next.until("the update arrives", func() bool { return next.count("update") == 1 })
			r.fail(times(1), 189, "getMore")
			next.goesOn()
			if next.count("update") != 1 {
				t.Errorf("the update came %d times", next.count("update"))
			}
		})
	}
}

// An event of /v1/events as it is sent.
type sent struct {
	name, id, data string
}

// follow reads /v1/events from behind an id until take has seen enough.
func (n *live) follow(id string, take func(sent) (enough bool)) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+"/v1/events", nil)
	if err != nil {
		n.Fatal(err)
	}
	if id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		n.Fatalf("status %d", resp.StatusCode)
	}
	var e sent
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data += value
		case "":
			if take(e) {
				return
			}
			e = sent{}
		}
	}
	n.Fatal("the stream of events ended")
}

// A subscriber that asks for a position which the log has lost is told what it may have missed, and
// goes on with what is there.
func TestSubscriberThatAsksForADeadPosition(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.begin()
	n.sees(r.series(0, 20)...)
	var id string
	from := r.now()
	inserted := false
	n.follow("", func(e sent) bool {
		if !inserted {
			inserted = true
			r.insert("known")
		}
		if strings.Contains(e.data, "known") {
			id = e.id
		}
		return id != ""
	})
	r.series(20, 40)
	since := r.server.ClusterTime() + 1
	r.elsewhere(1)
	kept := r.series(40, 60)
	r.server.TruncateOplogBefore(since)
	onward := r.earliest("4.4")
	n.stopped() // its ring, which still has all, ends with it
	n = r.begin()
	opened := r.server.Stats().ChangeStreamsOpened
	var told []sent
	seen := map[string]bool{}
	n.follow(id, func(e sent) bool {
		if strings.Contains(e.data, string(gap.HistoryLost)) {
			told = append(told, e)
		}
		for _, k := range kept {
			if strings.Contains(e.data, `"documentKey":{"_id":`+k+`}`) {
				seen[k] = true
			}
		}
		return len(seen) == len(kept)
	})
	if len(told) != 1 {
		t.Fatalf("told %d times of a loss", len(told))
	}
	var notice struct {
		LostFrom, LostTo struct {
			Timestamp struct{ T, I uint32 } `json:"$timestamp"`
		}
	}
	text := strings.NewReplacer("lost_from", "LostFrom", "lost_to", "LostTo").Replace(told[0].data)
	if err := json.Unmarshal([]byte(text), &notice); err != nil {
		t.Fatalf("%v: %s", err, told[0].data)
	}
	begin, end := notice.LostFrom.Timestamp, notice.LostTo.Timestamp
	if begin.T < from.T || (change.Timestamp{T: begin.T, I: begin.I}).Compare(onward) >= 0 || (change.Timestamp{T: end.T, I: end.I}) != onward {
		t.Errorf("lost from %v to %v, the log can be read from %v on: %s", begin, end, onward, told[0].data)
	}
	// The node's tail and the catch-ups of its lanes and of the subscriber are among them.
	if again := r.server.Stats().ChangeStreamsOpened - opened; again > 6 {
		t.Errorf("%d streams were opened", again)
	}
}
