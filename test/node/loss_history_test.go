package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// A server that refuses every position although its log has them is asked once a second at most;
// nothing is told as lost, and nothing is missing afterwards.
func TestHistoryThatIsRefusedAgainAndAgainIsNoHotLoop(t *testing.T) {
	t.Parallel()
	for _, code := range []int{286, 136, 464, 326, 280, 260} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			const free = 5 // openings that losses do not hold back
			r := newRig(t, devmongo.Config{NoopEvery: 100 * time.Millisecond})
			n := r.begin()
			n.sees(r.series(0, 20)...)
			opened, connections, begun := r.server.Stats().ChangeStreamsOpened, r.server.Stats().ConnectionsOpen, time.Now()
			states := n.watchStates()
			r.fail("alwaysOn", code, "getMore")
			r.series(20, 40)
			n.until("streams were opened again and again", func() bool { return r.server.Stats().ChangeStreamsOpened-opened >= free+3 })
			stats, took := r.server.Stats(), time.Since(begun)
			// A token that is refused is tried by operation time too, which is an opening of the
			// same stream.
			if most := 2*free + 2*(1+int64(took/time.Second)); stats.ChangeStreamsOpened-opened > most {
				t.Errorf("opened %d times in %v", stats.ChangeStreamsOpened-opened, took)
			}
			// The pool of the streams' connections may fill, and no more.
			if stats.ChangeStreamsOpen > free || stats.ConnectionsOpen-connections > 2*free {
				t.Errorf("%d streams and %d connections more than before are open", stats.ChangeStreamsOpen, stats.ConnectionsOpen-connections)
			}
			if len(n.gaps()) != 0 || len(n.losses()) != 0 {
				t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
			}
			r.heal()
			n.sees(idsUpTo(40)...)
			n.once(idsUpTo(40)...)
			n.goesOn()
			n.until("every partition is well", func() bool {
				return !slices.ContainsFunc(n.status(), func(s streamer.PartitionStatus) bool { return s.State != health.Healthy && s.State != health.Idle })
			})
			// From then on it is a problem that MongoDB refuses, and what is not read is stuck.
			long := time.Since(begun) > 3*time.Second
			for state := range states() {
				if !slices.Contains([]health.Status{health.Healthy, health.Idle, health.Lagging}, state) && (state != health.Stuck || !long) {
					t.Errorf("a partition was %s meanwhile", state)
				}
			}
			if len(n.gaps()) != 0 || len(n.losses()) != 0 || n.metric("streamer_log_losses_total") != 0 {
				t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
			}
		})
	}
}

// wantOneLoss holds what a node tells of one lost stretch against what was missed: one loss and one
// gap entry, whose bounds contain every missed event, and nothing more afterwards.
func (n *live) wantOneLoss(missed []change.Position, onward change.Timestamp) {
	n.Helper()
	n.until("it is told", func() bool { return len(n.losses()) > 0 })
	n.goesOn()
	n.hasGaps()
	losses, gaps := n.losses(), n.gaps()
	if len(losses) != 1 || len(gaps) != 1 {
		n.Fatalf("%d losses, %d gap entries", len(losses), len(gaps))
	}
	l, g := losses[0], gaps[0]
	if l.kind != "resync" || l.reason != string(gap.HistoryLost) || l.advice == "" || !slices.Equal(l.namespaces, []string{"shop.*"}) {
		n.Errorf("loss %+v", l)
	}
	if l.to != onward || g.To.Time != onward || g.Reason != string(gap.HistoryLost) {
		n.Errorf("the loss ends at %v, the gap %+v at %v, the log can be read from %v on", l.to, g, g.To, onward)
	}
	for _, p := range missed {
		if !l.bounds(p.Time, false) || !p.After(g.From) || !g.To.After(p) {
			n.Errorf("%v is outside of (%v, %v), or of the gap (%v, %v)", p, l.from, l.to, g.From, g.To)
		}
	}
	if kinds := n.posted(notice.Resync); len(kinds) != 1 {
		n.Errorf("operators were told %v", kinds)
	}
	if lost := n.metric("streamer_log_losses_total"); lost != 1 {
		n.Errorf("%v losses counted", lost)
	}
}

// positions returns the positions of the inserts of shop.orders since the time, read past the node.
func (r *rig) positions(since change.Timestamp) (positions []change.Position) {
	r.Helper()
	stream, err := r.coll("orders").Watch(r.Context(), bson.A{}, options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: since.T, I: since.I}))
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = stream.Close(r.Context()) }()
	for stream.TryNext(r.Context()) {
		e, err := change.Parse(stream.Current)
		if err != nil {
			r.Fatal(err)
		}
		positions = append(positions, e.Position().Clone())
	}
	if err := stream.Err(); err != nil {
		r.Fatal(err)
	}
	return positions
}

// A node that was stopped for longer than the log reaches back records and tells one loss, and is
// live at once.
func TestNodeThatWasStoppedForLongerThanTheLog(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: release})
			n := r.begin()
			n.sees(r.series(0, 40)...)
			n.stopped()
			since := r.now().Next()
			r.series(40, 80)
			missed := r.positions(since)
			if len(missed) != 40 {
				t.Fatalf("%d missed", len(missed))
			}
			begin := r.server.ClusterTime() + 1
			r.elsewhere(1)
			kept := r.series(80, 100)
			r.server.TruncateOplogBefore(begin)
			onward := r.earliest(release)
			opened := r.server.Stats().ChangeStreamsOpened
			n = r.beginWith(&ledger{deaf: true})
			n.until("it is told of a loss", func() bool { return len(n.losses()) == 1 })
			n.until("every partition is stale", func() bool {
				return !slices.ContainsFunc(n.status(), func(s streamer.PartitionStatus) bool { return s.State != health.Stale })
			})
			n.sees(kept...)
			n.once(kept...)
			n.wantOneLoss(missed, onward)
			n.listen()
			n.until("no partition is stale", func() bool {
				return !slices.ContainsFunc(n.status(), func(s streamer.PartitionStatus) bool { return s.State == health.Stale })
			})
			// One stream to look what can be done, the tail, and the catch-ups: one that learns of
			// the loss, one behind it.
			if again := r.server.Stats().ChangeStreamsOpened - opened; again > 5 {
				t.Errorf("%d streams were opened", again)
			}
			n.saved(onward)
			n.stopped()
			n = r.begin()
			n.goesOn()
			if len(n.losses()) != 0 || len(n.gaps()) != 1 {
				t.Errorf("after a restart: %d losses, %d gaps", len(n.losses()), len(n.gaps()))
			}
		})
	}
}

// The server takes a lost position without an error, answers with progress beyond the loss, and
// says what is wrong only with the next event. No checkpoint may follow that progress.
func TestSilenceAfterALossIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{NoopEvery: 20 * time.Millisecond})
	n := r.begin()
	n.sees(r.series(0, 40)...)
	n.stopped()
	before := n.stored(sharedName)
	since := r.now().Next()
	r.series(40, 80)
	missed := r.positions(since)
	r.server.TruncateOplog(0) // and only no-ops follow
	onward := r.earliest("4.4")
	n = r.beginWith(&ledger{deaf: true})
	n.until("it is told of a loss", func() bool { return len(n.losses()) == 1 })
	// Rounds of checkpoints go by while the log moves on.
	at := r.now().T
	n.until("the log has moved on for a while", func() bool { return r.now().T > at+4 })
	for p, c := range n.stored(sharedName) {
		if c.Position.Compare(before[p].Position) != 0 {
			t.Errorf("the checkpoint of partition %d has moved from %v to %v", p, before[p].Position, c.Position)
		}
	}
	n.wantOneLoss(missed, onward)
	n.listen()
	n.saved(onward)
}

// A node that may not look at the oplog, as behind mongos, learns of a loss from the server's
// refusal alone, which comes with the first reading: it tells it and goes on.
func TestLossIsToldWithoutTheRightToReadTheOplog(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: release, NoopEvery: 50 * time.Millisecond})
			r.fail("alwaysOn", 13, "find") // also of other collections, which this node has no need to read
			n := r.begin()
			n.sees(r.series(0, 40)...)
			n.stopped()
			since := r.now().Next()
			r.series(40, 80)
			missed := r.positions(since)
			begin := r.server.ClusterTime() + 1
			r.series(80, 100)
			r.server.TruncateOplogBefore(begin)
			n = r.begin()
			n.until("every partition is told", func() bool { return len(n.losses()) == 1 })
			n.goesOn()
			n.hasGaps()
			if len(n.losses()) != 1 || len(n.gaps()) != 1 {
				t.Errorf("%d losses, %d gaps", len(n.losses()), len(n.gaps()))
			}
			for _, p := range missed {
				if l := n.losses()[0]; !l.bounds(p.Time, false) {
					t.Errorf("%v is outside of (%v, %v)", p, l.from, l.to)
				}
			}
		})
	}
}
