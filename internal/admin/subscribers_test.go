package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// A node has sessions as a test wants them.
type node []streamer.SubscriberStatus

func (n node) Subscribers() []streamer.SubscriberStatus { return n }
func (n node) SharedLag(string) (float64, bool)         { return 0, false }

// caughtUp are nodes that say how late their shared subscribers are.
type caughtUp struct {
	node
	late float64
}

func (c caughtUp) SharedLag(string) (float64, bool) { return c.late, true }

// Filters returns one subscription of each of its subscribers.
func (n node) Filters(_ context.Context, name string, _ int) ([]delivery.Subscription, int, bool) {
	program, err := match.Compile(match.Filter{DB: "shop", Coll: "orders", Source: `op == "insert"`, Ops: []change.Op{change.OpInsert}})
	if err != nil || !slices.ContainsFunc(n, func(s streamer.SubscriberStatus) bool { return s.Name == name }) {
		return nil, 0, false
	}
	return []delivery.Subscription{{ID: "inserts", Program: program}}, 1, true
}

// ask returns the answer of a node about its subscribers.
func ask(t *testing.T, h http.Handler) *admin.SubscriberList {
	t.Helper()
	status, text := get(t, h)
	var list admin.SubscriberList
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v: %s", status, err, text)
	}
	return &list
}

func row(t *testing.T, list *admin.SubscriberList, name string) admin.Subscriber {
	t.Helper()
	for _, s := range list.Subscribers {
		if s.Subscriber == name {
			return s
		}
	}
	t.Fatalf("no %s in %+v", name, list)
	return admin.Subscriber{}
}

func equals[T comparable](got *T, want T) bool { return got != nil && *got == want }

func TestSubscribersAreListedConnectedOrNot(t *testing.T) {
	s, mongo := world(t)
	connect(t, s, "live", at(500), map[change.Partition]change.Position{1: at(400)})
	connect(t, s, "gone", at(10), nil)
	if _, err := s.Rewind(t.Context(), sink(1), at(50), "me", ""); err != nil {
		t.Fatal(err)
	}
	sessions := node{
		{Name: "live", Process: "p/live", By: "ann", Live: true, Position: at(900), Partitions: partitions, Unacknowledged: 7, Bytes: 70, Losses: 1, CreditEvents: 3, CreditBytes: 30},
		{Name: "new", Process: "p/new", Partitions: partitions},
		{Name: "sink", Shared: true, Live: true, Position: at(999), Partitions: 2}, // the others are another node's
	}
	list := ask(t, admin.ServeSubscribers("a", sessions, s, mongo, slog.New(slog.DiscardHandler)))
	if list.Node != "a" || list.Origin.Cluster != "c" || len(list.Subscribers) != 4 || list.Error != "" || list.LogError != "" ||
		!list.NewestEntry.Equal(at(1000).Time.Time()) || !list.OplogBegins.Equal(at(5).Time.Time()) || list.OplogOldest != nil {
		t.Fatalf("%+v", list)
	}
	// 1000 entries over the 990 s after the earliest.
	live := row(t, list, "live")
	if live.Kind != admin.Exclusive || live.Position.T != at(400).Time.T || !equals(live.Lag, 100) || !equals(live.Behind, 101) || !equals(live.HeadRoom, 395) ||
		!equals(live.Connected, true) || live.Claim.Process != "p/live" || live.Claim.Node != "a" || live.Claim.Identity != "ann" || !live.SavedAt.Equal(saved()) {
		t.Errorf("%+v", live)
	}
	if s := live.Session; s == nil || !s.Live || s.Events != 7 || s.Bytes != 70 || s.Losses != 1 || s.CreditEvents != 3 || s.CreditBytes != 30 || s.Position.T != at(900).Time.T {
		t.Errorf("%+v", s)
	}
	if gone := row(t, list, "gone"); !equals(gone.Connected, false) || gone.Session != nil || !equals(gone.Lag, 990) || !equals(gone.Behind, 1000) || !equals(gone.HeadRoom, 5) {
		t.Errorf("%+v", gone)
	}
	if fresh := row(t, list, "new"); !equals(fresh.Connected, true) || fresh.Position != nil || fresh.Lag != nil || fresh.HeadRoom != nil || fresh.SavedAt != nil {
		t.Errorf("%+v", fresh)
	}
	// In the partition without a checkpoint it is where the cluster began, whatever a node has of
	// the others.
	if sink := row(t, list, "sink"); sink.Kind != admin.Shared || sink.Without != 1 || sink.Position.T != at(10).Time.T || !equals(sink.Lag, 990) || sink.Generation != 1 ||
		!equals(sink.Connected, true) || sink.Claim != nil {
		t.Errorf("%+v", sink)
	}
	// Where all nodes say how late it is, the age of its checkpoint is no lag.
	for late, behind := range map[float64]int64{0: 0, 10: 10} {
		list := ask(t, admin.ServeSubscribers("a", caughtUp{sessions, late}, s, mongo, slog.New(slog.DiscardHandler)))
		if sink, gone := row(t, list, "sink"), row(t, list, "gone"); !equals(sink.Lag, late) || !equals(sink.Behind, behind) || !equals(gone.Lag, 990) {
			t.Errorf("%v late: %v, %v", late, *sink.Lag, *sink.Behind)
		}
	}
	// A command reads the store, and asks a node who is connected.
	mine, err := admin.Subscribers(t.Context(), s)
	if err != nil || row(t, mine, "live").Connected != nil {
		t.Fatalf("%+v, %v", mine, err)
	}
	answer := ask(t, admin.ServeSubscribers("b", node{{Name: "gone", Position: at(20), Partitions: partitions}}, s, mongo, slog.New(slog.DiscardHandler)))
	mine.Join(answer)
	mine.Measure(t.Context(), mongo)
	if live, gone := row(t, mine, "live"), row(t, mine, "gone"); live.Connected != nil || !equals(gone.Connected, true) || !equals(gone.Lag, 980) || gone.Session.Node != "b" {
		t.Errorf("%+v, %+v", live, gone)
	}
}

func TestSubscribersAreListedAsFarAsAnythingIsKnown(t *testing.T) {
	s, mongo := world(t)
	connect(t, s, "gateway", at(1), nil)
	mongo.unreadable = true
	list := ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler)))
	if g := row(t, list, "gateway"); list.OplogBegins != nil || g.HeadRoom != nil || g.Behind != nil || !equals(g.Lag, 999) {
		t.Errorf("%+v", g)
	}
	mongo.unreadable, mongo.growing = false, true
	if g := row(t, ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler))), "gateway"); !equals(g.HeadRoom, -4) { // it left before
		t.Errorf("%+v", g)
	}
	connect(t, s, "young", at(7), nil)
	if g := row(t, ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler))), "young"); g.HeadRoom != nil || !equals(g.Lag, 993) {
		t.Errorf("nothing leaves a log that grows: %+v", g)
	}
	mongo.growing = false
	list = ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler))) // what left the oplog cannot be counted
	if g := row(t, list, "gateway"); !equals(g.HeadRoom, -4) || !equals(g.Behind, 1000) {
		t.Errorf("%+v", g)
	}
	mongo.away = errors.New("MongoDB is away")
	list = ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler)))
	if g := row(t, list, "gateway"); list.LogError == "" || g.Lag != nil || g.Position == nil {
		t.Errorf("%+v, %+v", list, g)
	}
	mongo.away = nil
	list = ask(t, admin.ServeSubscribers("a", node{{Name: "gateway", Position: at(2)}}, away{s}, mongo, slog.New(slog.DiscardHandler)))
	if g := row(t, list, "gateway"); list.Error == "" || !equals(g.Connected, true) || g.Position != nil {
		t.Errorf("%+v, %+v", list, g)
	}
	if status, text := get(t, admin.ServeSubscribers("a", node{}, away{s}, mongo, slog.New(slog.DiscardHandler))); status != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", status, text)
	}
	if _, err := admin.Subscribers(t.Context(), checkpointtest.NewMemory(partitions)); fault.Of(err) != fault.ClusterUnknown {
		t.Errorf("of no cluster: %v", err)
	}
}

// The log may begin before the oplog: head-room counts to its beginning, and a position before the
// oplog's is behind by an unknown number of entries, which makes that of others no smaller.
func TestEntriesBeforeTheOplogAreNotCounted(t *testing.T) {
	s, mongo := world(t)
	mongo.retained, mongo.first = at(5).Time, at(500).Time
	connect(t, s, "early", at(20), nil)
	connect(t, s, "first", at(500), nil)
	connect(t, s, "late", at(750), nil)
	list := ask(t, admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler)))
	if g := row(t, list, "early"); g.Behind != nil || !equals(g.Lag, 980) || !equals(g.HeadRoom, 15) || !list.OplogBegins.Equal(at(5).Time.Time()) ||
		list.OplogOldest == nil || !list.OplogOldest.Equal(at(500).Time.Time()) {
		t.Errorf("before the oplog: %+v of %+v", g, list)
	}
	if g := row(t, list, "late"); !equals(g.Behind, 500) || !equals(g.HeadRoom, 745) {
		t.Errorf("in the oplog: %+v", g)
	}
	for to, want := range map[uint32]struct {
		reached admin.Reach
		known   bool
	}{3: {admin.NotReached, false}, 10: {admin.Reached, false}, 600: {admin.Reached, true}} {
		plan, err := admin.PlanRewind(t.Context(), s, mongo, "late", nil, at(to))
		if err != nil || plan.Reached != want.reached || (plan.Entries != nil) != want.known || (plan.Steps[0].Events != nil) != want.known {
			t.Errorf("a rewind to %d: %+v, %v", to, plan, err)
		}
	}
	if target, err := admin.FindTarget(t.Context(), mongo, admin.Earliest); err != nil || !same(target, at(5)) {
		t.Errorf("earliest is %s, %v", target, err)
	}
}

// An away store does not answer.
type away struct{ admin.Store }

func (away) Origin(context.Context) (checkpoint.Origin, error) {
	return checkpoint.Origin{}, fault.Newf(fault.EtcdUnreachable, "away")
}

// A client that asks again and again does not have MongoDB count again and again.
func TestEntriesAreNotCountedForEachRequest(t *testing.T) {
	s, mongo := world(t)
	h := admin.ServeSubscribers("a", node{}, s, mongo, slog.New(slog.DiscardHandler))
	ask(t, h)
	mongo.asked = false
	if list := ask(t, h); mongo.asked || !equals(row(t, list, "sink").Behind, 1000) {
		t.Errorf("asked: %t, %+v", mongo.asked, list)
	}
	connect(t, s, "gateway", at(6), nil) // earlier than what was counted
	if list := ask(t, h); !mongo.asked || !equals(row(t, list, "gateway").Behind, 1000) {
		t.Errorf("asked: %t, %+v", mongo.asked, list)
	}
}

// A shared subscriber's loss is in the checkpoint of each partition, and is shown once.
func TestLossesOfASubscriberAreShownOnce(t *testing.T) {
	t.Parallel()
	s := checkpointtest.NewMemory(2)
	origin, err := s.Create(t.Context(), checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: 2, Source: "s", Start: change.Timestamp{T: 1, I: 1}})
	if err != nil {
		t.Fatal(err)
	}
	lost := checkpoint.Gap{From: change.At(change.Timestamp{T: 10, I: 1}), To: change.At(change.Timestamp{T: 20, I: 1}), Reason: "history_lost", Namespaces: []string{"shop.orders"}, By: "a"}
	for p := range change.Partition(2) {
		c := checkpoint.Checkpoint{
			Key: checkpoint.Key{Subscriber: "sink/out", Shared: true, Partition: p}, Position: change.At(change.Timestamp{T: 30, I: 1}), Partitions: origin.Partitions,
			Losses: []checkpoint.Gap{lost},
		}
		if err := s.Put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	list, err := admin.Subscribers(t.Context(), s)
	if err != nil || len(list.Subscribers) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	shown := list.Subscribers[0].Losses
	if len(shown) != 1 || shown[0].LostFrom.T != 10 || shown[0].LostTo.T != 20 || shown[0].Reason != "history_lost" || len(shown[0].Namespaces) != 1 {
		t.Errorf("%+v", shown)
	}
}
