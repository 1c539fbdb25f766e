package wiring

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// A retained log that stalls counts only while it has the middle of the oplog: it is about to leave
// that, and then has a gap.
func TestStalledRetainedLogCountsNoMore(t *testing.T) {
	var r retained
	at := func(seconds uint32) change.Timestamp { return change.Timestamp{T: seconds} }
	for _, c := range []struct{ last, to, want uint32 }{
		{2000, 900, 0}, {2000, 1100, 0}, {2000, 1439, 0}, {2000, 1441, 10}, {2000, 2000, 10}, // a minute before the middle
		{1100, 999, 0}, {1100, 1001, 10}, // an oplog of a few minutes
	} {
		r.extent.Store(&retention.Extent{From: at(10), To: at(c.to)})
		if got := r.extend(gap.Reach{First: at(1000), Last: at(c.last)}).Retained; got != at(c.want) {
			t.Errorf("to %d of %d: from %s", c.to, c.last, got)
		}
	}
}

// A position leaves the retained log when its part of it expires: in a log that has not reached its
// bounds that is later than where it begins says, and never if there are none.
func TestPositionsLeaveTheRetainedLogWhenTheyExpire(t *testing.T) {
	const hour = 3600
	at := func(hours uint32) change.Timestamp { return change.Timestamp{T: hours * hour} }
	oplog := gap.Reach{First: at(97), Last: at(100)}
	for _, c := range []struct {
		name   string
		limits config.Retention
		growth bool // of the oplog
		room   time.Duration
		leaves bool
	}{
		{"by age", config.Retention{MaxAge: 24 * time.Hour}, false, 15 * time.Hour, true},
		{"at its age", config.Retention{MaxAge: 10 * time.Hour}, false, time.Hour, true},
		{"above its age", config.Retention{MaxAge: 9 * time.Hour}, false, time.Hour, true},
		{"by size", config.Retention{MaxAge: 24 * time.Hour, MaxBytes: 1500}, false, 6 * time.Hour, true},
		{"at its size", config.Retention{MaxBytes: 1000}, false, time.Hour, true},
		{"without bounds", config.Retention{}, false, 0, false},
		{"before an oplog that grows", config.Retention{MaxAge: 24 * time.Hour}, true, 15 * time.Hour, true},
	} {
		r := retained{limits: c.limits}
		r.extent.Store(&retention.Extent{From: at(90), To: at(100), Bytes: 1000})
		of := oplog
		of.Growing = c.growth
		reach := r.extend(of)
		if room, leaves := reach.HeadRoom(change.At(at(91))); leaves != c.leaves || leaves && room != c.room {
			t.Errorf("%s: it leaves in %s: %t", c.name, room, leaves)
		}
		if room, left := reach.HeadRoom(change.At(at(89))); !left || room != -time.Hour {
			t.Errorf("%s: what has left has %s: %t", c.name, room, left)
		}
	}
}

// What one node's folder has, other nodes have not: operators, who ask any node about a subscriber
// of all, see the oplog only. A bucket is of all nodes.
func TestOperatorsOfSeveralNodesSeeOnlyTheOplog(t *testing.T) {
	oplog := gap.Reach{First: change.Timestamp{T: 1000}, Last: change.Timestamp{T: 2000}}
	for _, c := range []struct {
		nodes int
		store string
		want  uint32
	}{{1, "file:///log", 10}, {2, "file:///log", 0}, {1, "s3://log", 10}, {2, "s3://log", 10}} {
		s := Service{opts: Options{Config: config.Config{Cluster: config.Cluster{ExpectedNodes: c.nodes}, Retention: config.Retention{Store: c.store}}}}
		s.retained.extent.Store(&retention.Extent{From: change.Timestamp{T: 10}, To: oplog.Last})
		if got := s.readable().Extend(oplog).Retained; got.T != c.want {
			t.Errorf("%d nodes, %s: %s", c.nodes, c.store, got)
		}
	}
}

// acted returns a service whose retained log two commands were run on, and its chain.
func acted(t *testing.T, store retention.Store) (*Service, *retention.Chain) {
	t.Helper()
	s := &Service{logger: slog.New(slog.DiscardHandler)}
	s.board = notice.NewBoard(notice.Config{Node: "a"})
	chain := retention.ChainAt(store, "v1/test/1")
	s.retained.chain.Store(chain)
	for _, command := range []string{"prune", "forget"} {
		if err := chain.RecordAction(t.Context(), "ann", command); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	return s, chain
}

// texts returns the texts of a board's notices.
func texts(board *notice.Board) string {
	var said []string
	all, _ := board.Since(0)
	for _, n := range all {
		said = append(said, n.Text)
	}
	return strings.Join(said, ", ")
}

// An action that cannot be read or removed for a while keeps no other one from the audit log, and
// is there once, whichever node looks.
func TestActionsOnTheRetainedLogAreToldOnce(t *testing.T) {
	for refused, want := range map[string]string{
		"get":    "ann has confirmed: forget, ann has confirmed: prune",
		"delete": "ann has confirmed: prune, ann has confirmed: forget",
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &retentiontest.Memory{}
			s, _ := acted(t, store)
			first := store.Keys()[0]
			store.Before = func(_ context.Context, op, key string) error {
				if op == refused && key == first {
					return errors.New("refused")
				}
				return nil
			}
			for range 3 {
				s.auditRetained(t.Context())
			}
			if left := store.Keys(); len(left) != 1 || left[0] != first {
				t.Errorf("%s of %s is refused: left are %v", refused, first, left)
			}
			next := &Service{logger: s.logger} // it leads now, and knows the history
			next.board = notice.NewBoard(notice.Config{Node: "b"})
			next.retained.chain.Store(s.retained.chain.Load())
			history, _ := s.board.Since(0)
			next.board.Relay(history...)
			next.auditRetained(t.Context())
			if refused == "delete" && texts(next.board) != want {
				t.Errorf("the next node tells %s", texts(next.board))
			}
			store.Before = nil
			s.auditRetained(t.Context())
			if got := texts(s.board); got != want {
				t.Errorf("%s is refused: %s", refused, got)
			}
			if left := store.Keys(); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// An absent history takes nothing.
type absentHistory struct{}

func (absentHistory) Append(context.Context, []notice.Notice) error { return errors.New("absent") }

func (absentHistory) Read(context.Context, int64) ([]notice.Notice, int64, error) {
	return nil, 0, errors.New("absent")
}

func (absentHistory) Wait(context.Context, int64) error { return errors.New("absent") }

// While etcd is away, actions stay in the store, are told once, and nobody waits for them: the node
// knows how far the retained log goes.
func TestRetainedLogIsLookedAtWithoutEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &retentiontest.Memory{}
		s, chain := acted(t, store)
		s.channels.recorder = notice.NewRecorder(notice.RecorderConfig{}, s.board, absentHistory{})
		_, log := newNode(t, 1, nil)
		s.retained.writer = retention.NewWriter(retention.WriterConfig{Node: "a"}, chain, log)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.channels.run(ctx) })
		running.Go(func() { s.runRetention(ctx) })
		time.Sleep(time.Hour)
		old := &retention.Extent{To: change.Timestamp{T: 1}}
		s.retained.extent.Store(old)
		time.Sleep(time.Hour)
		if s.retained.extent.Load() == old {
			t.Error("nobody looked at the store for an hour")
		}
		if got := texts(s.board); got != "ann has confirmed: prune, ann has confirmed: forget" {
			t.Error(got)
		}
		if left := store.Keys(); len(left) != 2 {
			t.Errorf("left are %v", left)
		}
		stop()
		running.Wait()
	})
}
