package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// The post-batch tokens of MongoDB 9.0 may go back after a stream was resumed, and may be those of
// control events, which cannot be resumed. Streams that break again and again, and a node that is
// stopped, go on at the time of such a token: every change comes once, and nothing is a loss
// unless that time has left the log.
func TestPostBatchTokensThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	for _, refusal := range []int{260, 280} {
		for _, over := range transports() {
			t.Run(fmt.Sprintf("%d/%s", refusal, over.name), func(t *testing.T) {
				t.Parallel()
				w := newStage(t, over, devmongo.Config{Release: "9.0", Adjust: func(p *devmongo.Profile) {
					p.ControlTokens = refusal
				}}, unhurried()...)
				var want []string
				for round := range 4 {
					want = append(want, w.series(10*round, 10*round+5)...)
					w.sees(want...)
					w.elsewhere(3)
					at := w.server.ClusterTime()
					w.until("the stream is at the token of a control event", func() bool {
						end := w.node.service.Log().Stats().End
						return uint64(end.Time.T)<<32|uint64(end.Time.I) >= at && !end.IsProgress()
					})
					switch round {
					case 0:
						w.fail(times(1), 43, "getMore")
					case 1: // right after it was resumed, too
						w.fail(times(4), 43, "getMore")
					case 2:
						w.node.stopped()
						w.start()
					}
					want = append(want, w.series(10*round+5, 10*round+10)...)
					w.sees(want...)
				}
				w.once(t, want...)
				if n := len(w.losses()); n > 0 {
					t.Errorf("%d losses are told: %s", n, w.ledger)
				}
				w.node.stopped()
				w.insert("lost")
				w.elsewhere(5)
				w.server.TruncateOplog(2) // the token's time has left the log
				w.start()
				w.until("the loss is told", func() bool { return len(w.losses()) > 0 })
				w.insert("kept")
				w.sees("kept")
			})
		}
	}
}

// holdRefusedTokens has every token refused, at each start and by each code that says so: the node
// goes on at the token's time. Where that has left the log, one loss bounds what is missing, and
// the next start tells of none.
func holdRefusedTokens(t *testing.T, w *stage) {
	t.Helper()
	again := func() {
		if w.transport.shared { // the others know themselves where they are
			w.comesAgain()
		}
		w.start()
	}
	stop := func() { // the last checkpoint of a slow machine may be late, as in a crash
		if err := w.node.stop(); errors.Is(err, errStands) {
			t.Fatal(err)
		}
	}
	var want []string
	for round, code := range []int{260, 280, 286} {
		w.server.RefuseTokens(code)
		at := w.now()
		here := w.series(10*round, 10*round+5)
		w.sees(here...)
		w.saved(at.Next())
		if round == 1 {
			w.kill()
		} else {
			stop()
		}
		away := w.series(10*round+5, 10*round+10)
		again()
		w.sees(away...)
		w.fail(times(1), 43, "getMore") // the driver resumes after a token, too
		want = append(append(want, here...), away...)
		if tries := w.node.metric("streamer_mongodb_streams_opened_total") + w.node.metric("streamer_mongodb_stream_failures_total"); tries > 20 {
			t.Errorf("%v openings and failures of streams", tries)
		}
	}
	if !w.transport.shared {
		w.once(t, want...)
	}
	if n := len(w.losses()); n > 0 {
		t.Errorf("%d losses are told: %s", n, w.ledger)
	}
	stop()
	w.insert("lost")
	w.elsewhere(5)
	w.server.TruncateOplog(2)
	again()
	w.until("the loss is told", func() bool { return len(w.losses()) > 0 })
	at := w.now()
	w.insert("kept")
	w.sees("kept")
	told := len(w.losses())
	w.saved(at)
	stop()
	w.insert("kept, too")
	again()
	w.sees("kept, too")
	if n := len(w.losses()); n != told || told != 1 {
		t.Errorf("%d losses, after the next start %d: %s", told, n, w.ledger)
	}
}

// moving is a cluster of two shards, in which a rename moves documents to the other one.
func moving() devmongo.Config {
	return devmongo.Config{Release: "9.0", Preset: "sharded", Adjust: func(p *devmongo.Profile) {
		p.NoopEvery, p.ConfigNoopEvery = 5*time.Millisecond, 5*time.Millisecond
	}}
}

// holdRenamesToAnotherShard renames a collection there and back between writes: its events come
// from another shard then. Each comes once, and each rename onto a watched name tells to read
// again.
func holdRenamesToAnotherShard(t *testing.T, w *stage) {
	t.Helper()
	const away = "shop.away"
	rename := func(from, to string) {
		w.command(bson.D{{Key: "renameCollection", Value: from}, {Key: "to", Value: to}})
	}
	var want []string
	for round := range 3 {
		want = append(want, w.series(30*round, 30*round+10)...)
		rename("shop.orders", away)
		for i := 30*round + 10; i < 30*round+20; i++ {
			if _, err := w.coll("away").InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(i))
		}
		switch round {
		case 0:
			w.fail(times(1), 43, "getMore")
		case 1:
			w.sees(want...)
			if err := w.node.stop(); errors.Is(err, errStands) {
				t.Fatal(err)
			}
			if w.transport.shared {
				w.comesAgain()
			}
			w.start()
		}
		rename(away, "shop.orders")
		want = append(want, w.series(30*round+20, 30*round+30)...)
		w.sees(want...)
	}
	if !w.transport.shared {
		w.once(t, want...)
	}
	var onto []string
	for _, l := range w.losses() {
		onto = append(onto, l.namespaces...)
	}
	if expected := slices.Repeat([]string{away, "shop.orders"}, 3); !slices.Equal(onto, expected) {
		t.Errorf("told to read again %v, want %v", onto, expected)
	}
}

// holdWritesElsewhere writes what is not watched: the subscriber's position follows the log, so
// that nothing is lost where the log has nothing older any more.
func holdWritesElsewhere(t *testing.T, w *stage) {
	t.Helper()
	w.sees(w.series(0, 5)...)
	w.elsewhere(100)
	at := w.now()
	w.elsewhere(100)
	w.saved(at)
	switch {
	case w.transport.keeps:
		w.until("the program's own position follows", func() bool {
			w.keeping.Lock()
			defer w.keeping.Unlock()
			id, _, _ := strings.Cut(w.at, ".")
			ref, err := change.ParseRefText(id, w.node.service.Origin().Cluster)
			return err == nil && ref.Time().Compare(at) > 0
		})
	case !w.transport.shared:
		for range 2 { // the first batch may have been on its way before
			had := w.follower.Stats().Batches
			w.elsewhere(1)
			w.until("the client is sent its position", func() bool { return w.follower.Stats().Batches > had })
		}
	}
	w.kill()
	w.server.TruncateOplogBefore(uint64(at.T)<<32 | uint64(at.I))
	away := w.series(5, 10)
	w.start()
	w.sees(away...)
	w.once(t, away...)
	if n := len(w.losses()); n > 0 {
		t.Errorf("%d losses are told: %s", n, w.ledger)
	}
}
