package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/streampb"
)

func TestChangesReachTheirHandlersAndAreAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2)
	if h := v.hello; h.GetGatewayId() != "g" || h.GetProcessId() == "" || h.GetStartedAt().AsTime().IsZero() || h.GetStart() != streampb.Start_START_NOW ||
		len(h.GetPositions()) > 0 || h.GetAck() != streampb.AckMode_ACK_MODE_EXPLICIT || len(h.GetSubscriptions()) != 1 {
		t.Errorf("hello: %v", h)
	}
	v.bookmarks(2, at("a"))
	told(t, j, anyOf[notice.Connected])
	v.batch(batch(1, at("a"), at("c1"), "b1", "c1"))
	v.acked(1, at("c1"))
	j.expect(t, "1:b1", "1:c1")
	p.end()
	if s := p.Stats(); s.Sessions != 1 || s.Changes != 2 || s.Duplicates != 0 || s.QueuedBytes != 0 {
		t.Errorf("%+v", s)
	}
	stands, ok := p.Positions()
	if !ok || stands.Cluster != "c" || string(stands.Partitions[0].Head) != "a" || string(stands.Partitions[1].Head) != "c" {
		t.Errorf("stands at %+v, %t", stands, ok)
	}
}

func TestReconnectGoesOnWhereItStandsAndDropsWhatItHas(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("a"), at("c1"), "b1", "c1"))
	v.acked(0, at("c1"))
	v.close(errBroken)

	v = n.welcomed(t, 2)
	if v.hello.GetStart() != streampb.Start_START_RESUME || v.hello.GetCluster() != "c" || v.hello.GetPartitionCount() != 2 || !slices.Equal(v.stands(), []string{"0:c1", "1:a"}) {
		t.Errorf("hello: %v", v.hello)
	}
	v.batch(batch(0, at("a"), at("d1"), "b1", "c1", "d1")) // from an earlier place
	v.acked(0, at("d1"))
	j.expect(t, "0:b1", "0:c1", "0:d1")
	told(t, j, func(d notice.Disconnected) bool {
		fault, ok := errors.AsType[*client.Error](d.Err)
		return ok && fault.Code == "STRM-NODE-STOPPING" && fault.Message == "the node stops" && fault.Remedy == "Connect to another node." && status.Code(d.Err) == codes.Unavailable
	})
	p.end()
	if s := p.Stats(); s.Duplicates != 2 || s.Sessions != 2 || s.Changes != 3 {
		t.Errorf("%+v", s)
	}
}

func TestEqualHeadsInTwoBatchesAndOverAReconnect(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.batch(batch(0, at("b1"), at("b2"), "b2"))
	v.acked(0, at("b2"))
	v.close(errBroken)
	v = n.welcomed(t, 1)
	if !slices.Equal(v.stands(), []string{"0:b12"}) {
		t.Errorf("stands at %q", v.stands())
	}
	v.batch(batch(0, at("b12"), at("b3"), "b3"))
	v.acked(0, at("b3"))
	v.close(errBroken)
	v = n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("c1"), "b2", "b1", "b4", "b3", "c1")) // another order among equal heads, and one more
	v.acked(0, at("c1"))
	j.expect(t, "0:b1", "0:b2", "0:b3", "0:b4", "0:c1")
	p.end()
}

func TestHoleIsReadAgain(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("b1"), at("c1"), "c1")) // b1 has been lost
	told(t, j, func(d notice.Disconnected) bool { return strings.Contains(d.Err.Error(), "missing") })
	v = n.welcomed(t, 2)
	if !slices.Equal(v.stands(), []string{"0:a", "1:a"}) {
		t.Errorf("stands at %q", v.stands())
	}
	v.batch(batch(0, at("a"), at("c1"), "b1", "c1"))
	v.acked(0, at("c1"))
	j.expect(t, "0:b1", "0:c1")
	p.end()
	if p.Stats().Holes != 1 {
		t.Errorf("%+v", p.Stats())
	}
}

func TestLossesComeInTheirPlaceAndAreAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.batch(loss(0, streampb.Loss_KIND_RESYNC, "b1", "f"))
	v.acked(0, at("f"))
	v.batch(batch(0, at("f"), at("g1"), "g1"))
	v.batch(loss(0, streampb.Loss_KIND_REWOUND, "a", "a"))
	v.batch(batch(0, at("a"), at("g1"), "b1", "g1"))
	v.acked(0, at("g1"))
	j.expect(t, "0:b1", "0:resync f history_lost", "0:g1", "0:rewound a", "0:b1", "0:g1")
	p.end()
	if p.Stats().Losses != 2 || p.Stats().Duplicates != 0 {
		t.Errorf("%+v", p.Stats())
	}
}

// unless is a handler that fails on some data so often before it deals with it.
func unless(j *journal, data string, failures int) client.Handler {
	var mu sync.Mutex
	return func(ctx context.Context, c client.Change) error {
		mu.Lock()
		defer mu.Unlock()
		if string(c.Data) == data && failures > 0 {
			failures--
			return errors.New("the database is away")
		}
		return j.handle(ctx, c)
	}
}

func TestHandlerThatFailsIsCalledAgainInItsPlace(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), unless(j, "c1", 4))
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("a"), at("d1"), "b1", "c1", "d1"))
	v.acked(0, at("d1"))
	j.expect(t, "0:b1", "0:c1", "0:d1")
	p.end()
	if s := p.Stats(); s.Failures != 4 || s.Skipped != 0 {
		t.Errorf("%+v", s)
	}
}

func TestPoisonIsSkippedIfTheProgramSaysSo(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	var poison client.Poison
	cfg.Attempts = 3
	cfg.OnPoison = func(_ context.Context, p client.Poison) client.Decision {
		poison = p
		return client.Skip
	}
	p := start(t, cfg, unless(j, "c1", 1000))
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("d1"), "b1", "c1", "d1"))
	v.acked(0, at("d1"))
	j.expect(t, "0:b1", "0:d1")
	p.end()
	if s := p.Stats(); s.Failures != 3 || s.Skipped != 1 || poison.Attempts != 3 || poison.Change == nil || poison.Change.ID() != "63-31" || poison.Err == nil {
		t.Errorf("%+v, %+v", s, poison)
	}
}

func TestPoisonEndsRunAndIsNotPassed(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), unless(j, "c1", 1000))
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.batch(batch(0, at("b1"), at("d1"), "c1", "d1"))
	acked := v.left()
	v.close(nil)
	err := p.wait()
	poison, ok := errors.AsType[*client.HandlerError](err)
	if !ok || poison.Attempts != 5 || poison.Change.Subscription != "s" || !strings.Contains(err.Error(), "63-31") {
		t.Fatalf("Run returned %v", err)
	}
	j.expect(t, "0:b1")
	if !slices.Equal(acked, []string{"0:b1"}) {
		t.Errorf("acknowledged %q", acked)
	}
	if stands, ok := p.Positions(); !ok || string(stands.Partitions[0].Head) != "b" {
		t.Errorf("stands at %+v", stands)
	}
}

func TestLossThatIsNotDealtWithEndsRun(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.OnNotice = func(_ context.Context, n notice.Notice) error {
		if _, ok := n.(notice.Resync); ok {
			return errors.New("cannot read the documents")
		}
		return nil
	}
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 1)
	v.batch(loss(0, streampb.Loss_KIND_RESYNC, "a", "f"))
	if acked := v.left(); len(acked) > 0 {
		t.Errorf("acknowledged %q", acked)
	}
	v.close(nil)
	poison, ok := errors.AsType[*client.HandlerError](p.wait())
	if _, resync := poison.Notice.(notice.Resync); !ok || !resync {
		t.Errorf("%+v", poison)
	}
}

func TestSlowPartitionDoesNotHoldTheOthers(t *testing.T) {
	n, j := newNode(t), newJournal()
	release := make(chan struct{})
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if c.Partition == 0 {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	for i := range 20 {
		from, to := string(rune('a'+i)), string(rune('b'+i))
		v.batch(batch(1, at(from), at(to+"1"), to+"1"))
		v.acked(1, at(to+"1"))
	}
	close(release)
	v.acked(0, at("b1"))
	p.end()
}

func TestAtMostSoManyHandlersRunAtATime(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Concurrency = 2
	var mu sync.Mutex
	running, most := 0, 0
	entered, leave := make(chan struct{}), make(chan struct{})
	p := start(t, cfg, func(ctx context.Context, c client.Change) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		entered <- struct{}{}
		<-leave
		mu.Lock()
		running--
		mu.Unlock()
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 6)
	for partition := range uint32(6) {
		v.batch(batch(partition, at("a"), at("b1"), "b1"))
	}
	<-entered
	<-entered
	for range 4 {
		leave <- struct{}{}
		<-entered
	}
	leave <- struct{}{}
	leave <- struct{}{}
	j.wait(t, "all", func() bool { return len(j.lines) == 6 })
	if most != 2 {
		t.Errorf("%d ran at a time", most)
	}
	p.end()
}

func TestHandlersInterruptedByTheEndAreNotAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside := make(chan struct{})
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "c1" {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.batch(batch(0, at("b1"), at("d1"), "c1", "d1"))
	<-inside
	p.stop()
	acked := v.left()
	v.close(nil)
	if err := p.wait(); err != nil {
		t.Error(err)
	}
	if !slices.Contains(acked, "0:b1") || slices.Contains(acked, "0:d1") {
		t.Errorf("acknowledged %q", acked)
	}
	j.expect(t, "0:b1")
	if p.Stats().Failures != 0 {
		t.Error("an interruption counts as a failure")
	}
}

func TestHandlerThatEndsAfterTheReconnectIsNotRepeated(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside, release := make(chan struct{}), make(chan struct{})
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "b1" {
			close(inside) // a second time would panic
			<-release
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("c1"), "b1", "c1"))
	v.batch(batch(0, at("c1"), at("d1"), "d1"))
	<-inside
	v.close(errBroken)
	v = n.welcomed(t, 1)
	if !slices.Equal(v.stands(), []string{"0:a"}) {
		t.Errorf("stands at %q, and nothing has been handled", v.stands())
	}
	v.batch(batch(0, at("a"), at("d1"), "b1", "c1", "d1"))
	close(release)
	v.acked(0, at("d1"))
	j.expect(t, "0:b1", "0:c1", "0:d1")
	p.end()
}

func TestOneChangeInTwoFormsReachesBothSubscriptions(t *testing.T) {
	n, j := newNode(t), newJournal()
	handler := func(_ context.Context, c client.Change) error {
		j.write(fmt.Sprintf("%s:%s:%d", c.Subscription, c.Data, c.Format))
		return nil
	}
	p := start(t, config(j, n.address), handler)
	if err := p.Subscribe(client.Subscription{ID: "json", Format: client.JSON}, handler); err != nil {
		t.Fatal(err)
	}
	v := n.welcomed(t, 1)
	b := batch(0, at("a"), at("c1"), "b1", "b1", "c1")
	b.Events[1].Subscriptions, b.Events[1].Format = []string{"json"}, streampb.Format_FORMAT_JSON
	b.Events[2].Subscriptions = []string{"json", "s", "nobody"}
	v.batch(b)
	v.acked(0, at("c1"))
	j.expect(t, "s:b1:0", "json:b1:2", "json:c1:0", "s:c1:0")
	p.end()
}

func TestSubscriptionsChangeWhileItRuns(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1)
	v.bookmarks(1, at("a"))
	if err := p.Subscribe(client.Subscription{ID: "x", DB: "shop", Coll: "orders", Ops: []string{"insert"}, Filter: "doc.n > 1", Format: client.JSON, Fields: []string{"n"}, Deletes: client.DeletesNone}, j.handle); err != nil {
		t.Fatal(err)
	}
	if err := p.Subscribe(client.Subscription{ID: "x"}, j.handle); err == nil {
		t.Error("two subscriptions of one id")
	}
	var sub *streampb.Subscription
	for sub == nil {
		if list := v.next().GetSubscribe().GetSubscriptions(); len(list) == 1 {
			sub = list[0]
		}
	}
	if sub.GetId() != "x" || sub.GetDb() != "shop" || sub.GetColl() != "orders" || !slices.Equal(sub.GetOps(), []string{"insert"}) || sub.GetFilter() != "doc.n > 1" ||
		sub.GetFormat() != streampb.Format_FORMAT_JSON || !slices.Equal(sub.GetFields(), []string{"n"}) || sub.GetDeletes() != streampb.Deletes_DELETES_NONE {
		t.Errorf("%v", sub)
	}
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: "x"}}})
	told(t, j, func(n notice.Subscribed) bool { return n.Subscription == "x" })
	p.Unsubscribe("x")
	for !slices.Equal(v.next().GetUnsubscribe().GetIds(), []string{"x"}) {
	}
	b := batch(0, at("a"), at("b1"), "b1")
	b.Events[0].Subscriptions = []string{"x"} // it was on its way
	v.batch(b)
	v.acked(0, at("b1"))
	v.close(errBroken)
	v = n.welcomed(t, 1)
	if len(v.hello.GetSubscriptions()) != 1 {
		t.Errorf("%v", v.hello.GetSubscriptions())
	}
	p.end()
	if p.Stats().Changes != 0 {
		t.Errorf("%+v", p.Stats())
	}
}

// A program whose subscription is refused would receive nothing and not know it: Run ends with what the node says, unless the program wants
// to go on without.
func TestRejectedSubscriptionEndsRun(t *testing.T) {
	n, j := newNode(t), newJournal()
	rejected := &streampb.Rejected{Id: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1)
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: rejected}})
	refused, isError := errors.AsType[*client.Error](p.wait())
	if !isError || refused.Code != rejected.GetCode() || refused.Remedy != "r" || !strings.Contains(refused.Error(), `"s": m`) {
		t.Errorf("Run returned %v", refused)
	}

	cfg := config(j, n.address)
	var asked []notice.Rejected
	cfg.OnRejected = func(_ context.Context, r notice.Rejected) client.Decision {
		asked = append(asked, r)
		return client.Skip
	}
	p = start(t, cfg, j.handle)
	v = n.welcomed(t, 1)
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: rejected}})
	v.bookmarks(1, at("a"))
	v.acked(0, at("a"))
	p.end()
	if len(asked) != 1 || asked[0] != (notice.Rejected{Subscription: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}) {
		t.Errorf("asked about %v", asked)
	}

	// One that is made while Run runs ends nothing.
	p = start(t, config(j, n.address), j.handle)
	v = n.welcomed(t, 1)
	if err := p.Subscribe(client.Subscription{ID: "late"}, j.handle); err != nil {
		t.Fatal(err)
	}
	for len(v.next().GetSubscribe().GetSubscriptions()) == 0 {
	}
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: &streampb.Rejected{Id: "late", Code: "STRM-FILTER-X"}}})
	v.bookmarks(1, at("b"))
	told(t, j, func(n notice.Rejected) bool { return n.Subscription == "late" })
	p.end()
}

func TestRejectedSubscriptionIsToldAndForgotten(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.OnRejected = func(context.Context, notice.Rejected) client.Decision { return client.Skip }
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 1)
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: &streampb.Rejected{Id: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}}})
	v.bookmarks(1, at("a"))
	told(t, j, func(n notice.Rejected) bool {
		return n == notice.Rejected{Subscription: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}
	})
	v.acked(0, at("a"))
	v.close(errBroken)
	v = n.welcomed(t, 1)
	if len(v.hello.GetSubscriptions()) != 0 {
		t.Errorf("%v", v.hello.GetSubscriptions())
	}
	if err := p.Subscribe(client.Subscription{ID: "s"}, j.handle); err != nil {
		t.Error(err)
	}
	p.end()
}

func TestServiceNoticesAreTyped(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1)
	for _, kind := range []string{"shutting_down", "detached", "moving", "moved", "stale", "degraded", "recovered", "filter_failed", "new"} {
		v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: kind, Text: "text", Partitions: []uint32{3}, Subscription: "s", Code: "STRM-X"}}})
	}
	told(t, j, func(n notice.ShuttingDown) bool { return n.Text == "text" })
	told(t, j, func(n notice.Moving) bool { return slices.Equal(n.Partitions, []uint32{3}) })
	told(t, j, anyOf[notice.Moved])
	told(t, j, anyOf[notice.Detached])
	told(t, j, anyOf[notice.Stale])
	told(t, j, anyOf[notice.Degraded])
	told(t, j, anyOf[notice.Recovered])
	told(t, j, func(n notice.FilterFailed) bool { return n.Subscription == "s" && n.Code == "STRM-X" })
	told(t, j, func(n notice.Other) bool { return n.Kind == "new" })
	p.end()
}

func TestCollectionEventIsReportedOnceAllPartitionsHavePassedIt(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.OnCollection = func(_ context.Context, c client.Change) { j.write("all have passed " + c.Op()) }
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 3)
	v.bookmarks(3, at("a"))
	drop := func(partition uint32) *streampb.Batch {
		b := batch(partition, at("a"), at("c"), "b1")
		b.Events[0].Change, b.Events[0].Format = []byte(`{"operationType":"drop"}`), streampb.Format_FORMAT_JSON
		return b
	}
	v.batch(drop(0))
	v.acked(0, at("c"))
	v.batch(drop(2))
	v.acked(2, at("c"))
	j.expect(t, `0:{"operationType":"drop"}`, `2:{"operationType":"drop"}`)
	v.batch(batch(1, at("a"), at("d"))) // nothing of it is there, and it is behind the event
	v.acked(1, at("d"))
	j.expect(t, `0:{"operationType":"drop"}`, `2:{"operationType":"drop"}`, "all have passed drop")
	p.end()
}

func TestPositionsOfTheProgramAreWhereItBegins(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start = client.StartResume
	cfg.Positions = &client.Positions{Cluster: "c", PartitionCount: 2, Partitions: map[uint32]client.Position{0: {Head: []byte("c"), Hashes: [][]byte{[]byte("1")}}, 1: {Head: []byte("b")}}}
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 2)
	if !slices.Equal(v.stands(), []string{"0:c1", "1:b"}) {
		t.Errorf("stands at %q", v.stands())
	}
	v.batch(batch(0, at("a"), at("d1"), "b1", "c1", "c2", "d1"))
	v.acked(0, at("d1"))
	j.expect(t, "0:c2", "0:d1")
	p.end()
}

func TestResumeByTheNodeAsksAgainUntilEveryPartitionIsKnown(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start = client.StartResume
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 2)
	told(t, j, anyOf[notice.Connected])
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.acked(0, at("b1"))
	if stands, ok := p.Positions(); ok {
		t.Errorf("stands at %+v, and of one partition nothing is known", stands)
	}
	v.close(errBroken)
	v = n.welcomed(t, 2)
	if v.hello.GetStart() != streampb.Start_START_RESUME || len(v.stands()) > 0 {
		t.Errorf("%v", v.hello)
	}
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	v.batch(batch(1, at("0"), at("a1"), "a1"))
	v.acked(1, at("a1"))
	v.close(errBroken)
	v = n.welcomed(t, 2)
	if !slices.Equal(v.stands(), []string{"0:b1", "1:a1"}) {
		t.Errorf("stands at %q", v.stands())
	}
	j.expect(t, "0:b1", "1:a1")
	p.end()
}

func TestStartIsRepeatedUntilItIsKnownWhereItWas(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	n.welcomed(t, 2).close(errBroken)
	v := n.welcomed(t, 2)
	if v.hello.GetStart() != streampb.Start_START_NOW {
		t.Errorf("%v", v.hello)
	}
	j.mu.Lock()
	for _, n := range j.notices {
		if _, connected := n.(notice.Connected); connected {
			t.Error("told that it is connected, and what happens now may be missed")
		}
	}
	j.mu.Unlock()
	v.batch(batch(1, at("a"), at("a")))
	v.acked(1, at("a"))
	told(t, j, anyOf[notice.Connected])
	v.close(errBroken)
	v = n.welcomed(t, 2)
	if !slices.Equal(v.stands(), []string{"0:a", "1:a"}) { // partition 0 began where partition 1 did
		t.Errorf("stands at %q", v.stands())
	}
	p.end()
}

func TestAnotherNumberOfPartitionsBeginsWhereAllHaveBeen(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2)
	v.bookmarks(2, at("a"))
	v.batch(batch(0, at("a"), at("d1"), "d1"))
	v.acked(0, at("d1"))
	v.batch(batch(1, at("a"), at("b1"), "b1"))
	v.acked(1, at("b1"))
	v.close(errBroken)
	v = n.welcomed(t, 3)
	if v.hello.GetPartitionCount() != 2 || !slices.Equal(v.stands(), []string{"0:d1", "1:b1"}) {
		t.Errorf("%v", v.hello)
	}
	v.batch(batch(2, at("a"), at("d1"), "b1", "c1", "d1"))
	v.acked(2, at("d1"))
	v.close(errBroken)
	v = n.welcomed(t, 3)
	if v.hello.GetPartitionCount() != 3 || !slices.Equal(v.stands(), []string{"0:b1", "1:b1", "2:d1"}) {
		t.Errorf("stands at %q", v.stands())
	}
	p.end()
	j.expect(t, "0:d1", "1:b1", "2:c1", "2:d1")
}

func TestEveryAddressIsTried(t *testing.T) {
	n, j := newNode(t), newJournal()
	gone := newNode(t) // refuses to serve
	go func() { gone.accept(t).close(errBroken) }()
	p := start(t, config(j, gone.address, n.address), j.handle)
	v := n.welcomed(t, 1)
	v.bookmarks(1, at("a"))
	told(t, j, func(d notice.Disconnected) bool { return d.Address == gone.address })
	told(t, j, func(c notice.Connected) bool { return c.Address == n.address })
	p.end()
}

// stopping tells the client that the node stops.
func (v *visit) stopping() {
	v.t.Helper()
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: "shutting_down", Text: "text"}}})
}

// A node that stops serves on until another node does, however long that takes.
func TestNodeThatStopsIsLeftWhenAnotherServes(t *testing.T) {
	old, busy, next, j := newNode(t), newNode(t), newNode(t), newJournal()
	p := start(t, config(j, old.address, busy.address, next.address), j.handle)
	before := old.welcomed(t, 1)
	before.bookmarks(1, at("a"))
	before.batch(batch(0, at("a"), at("b1"), "b1"))
	before.acked(0, at("b1"))
	before.stopping()
	busy.accept(t).close(errBroken) // which is no reason to leave the other
	after := next.accept(t)
	if after.hello.GetStart() != streampb.Start_START_RESUME || !slices.Equal(after.stands(), []string{"0:b1"}) {
		t.Errorf("hello: %v", after.hello)
	}
	before.batch(batch(0, at("b1"), at("c1"), "c1"))
	before.acked(0, at("c1"))
	after.welcome(1)
	after.bookmarks(1, at("b1")) // it has yet to come so far
	after.acked(0, at("b1"))
	before.batch(batch(0, at("c1"), at("d1"), "d1"))
	before.acked(0, at("d1"))
	after.batch(batch(0, at("b1"), at("c1"), "c1"))
	before.left()
	after.batch(batch(0, at("c1"), at("e1"), "d1", "e1"))
	after.acked(0, at("e1"))
	j.expect(t, "0:b1", "0:c1", "0:d1", "0:e1")
	p.end()
	if s := p.Stats(); s.Duplicates != 2 || s.Sessions != 2 {
		t.Errorf("%+v", s)
	}
}

// Where there is no other address, or it is not known yet where to go on, the session goes on until the node ends it.
func TestNodeThatStopsServesWhoeverCannotGoElsewhere(t *testing.T) {
	for name, tt := range map[string]struct{ alone, bookmarks bool }{"one address": {true, true}, "nothing known": {false, false}} {
		t.Run(name, func(t *testing.T) {
			n, other, j := newNode(t), newNode(t), newJournal()
			addresses := []string{n.address, other.address}
			if tt.alone {
				addresses = addresses[:1]
			}
			p := start(t, config(j, addresses...), j.handle)
			v := n.welcomed(t, 2)
			if tt.bookmarks {
				v.bookmarks(2, at("a"))
			}
			v.stopping()
			told(t, j, anyOf[notice.ShuttingDown])
			v.batch(batch(0, at("a"), at("b1"), "b1"))
			v.acked(0, at("b1"))
			v.close(errBroken)
			if tt.alone {
				other = n
			}
			v = other.welcomed(t, 2)
			v.bookmarks(2, at("a"))
			v.acked(1, at("a"))
			p.end()
			if s := p.Stats(); s.Sessions != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestErrorsThatTryingAgainDoesNotHelpEndRun(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		welcomed bool
		final    bool
	}{
		{"the request is wrong", status.Error(codes.InvalidArgument, "STRM-SESSION-BAD-REQUEST: no"), false, true},
		{"a newer process", status.Error(codes.AlreadyExists, "STRM-SESSION-REPLACED: newer"), true, true},
		{"no node", status.Error(codes.Unimplemented, "unknown service"), false, true},
		{"credentials", status.Error(codes.Unauthenticated, "STRM-X: who"), false, true},
		{"credentials that were good", status.Error(codes.Unauthenticated, "STRM-X: who"), true, false},
		{"an acknowledgement out of place", status.Error(codes.InvalidArgument, "STRM-SESSION-BAD-ACK: beyond"), true, false},
		{"limits", status.Error(codes.ResourceExhausted, "STRM-SESSION-TOO-MANY: later"), false, false},
		{"a crash", status.Error(codes.Internal, "oops"), false, false},
		{"a planned end", nil, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			p := start(t, config(j, n.address), j.handle)
			v := n.accept(t)
			if tt.welcomed {
				v.welcome(1)
				v.bookmarks(1, at("a"))
				v.acked(0, at("a"))
			}
			v.close(tt.err)
			if !tt.final {
				n.welcomed(t, 1)
				p.end()
				return
			}
			if err := p.wait(); status.Code(err) != status.Code(tt.err) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

func TestAnotherClusterEndsRun(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start = client.StartResume
	cfg.Positions = &client.Positions{Cluster: "other", PartitionCount: 1, Partitions: map[uint32]client.Position{0: {Head: []byte("c")}}}
	p := start(t, cfg, j.handle)
	n.welcomed(t, 1)
	if err := p.wait(); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("Run returned %v", err)
	}
}

func TestBatchesThatMakeNoSenseEndTheSession(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	refused := func(times int) {
		t.Helper()
		j.wait(t, "the end of the session", func() bool {
			so := 0
			for _, n := range j.notices {
				if d, ok := n.(notice.Disconnected); ok && strings.Contains(d.Err.Error(), "protocol") {
					so++
				}
			}
			return so == times
		})
	}
	both := loss(0, streampb.Loss_KIND_RESYNC, "a", "b")
	both.Events = batch(0, at("a"), at("b"), "b1").Events
	for i, b := range []*streampb.Batch{batch(7, at("a"), at("b")), {}, {From: at("a")}, both} {
		n.welcomed(t, 1).batch(b)
		refused(i + 1)
	}
	v := n.accept(t)
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{}}) // no welcome
	refused(5)
	n.accept(t)
	p.end()
	j.expect(t)
}

func TestAcksCanBeLeftToTheNode(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Acks = client.AckAuto
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("b1"), "b1"))
	j.expect(t, "0:b1")
	p.stop()
	if acked := v.left(); len(acked) > 0 || v.hello.GetAck() != streampb.AckMode_ACK_MODE_AUTO {
		t.Errorf("acknowledged %q, %v", acked, v.hello)
	}
}

func TestChannelWaitsUntilAChangeIsDone(t *testing.T) {
	n, j := newNode(t), newJournal()
	deliveries := make(chan client.Delivery)
	p := start(t, config(j, n.address), client.Channel(deliveries))
	v := n.welcomed(t, 1)
	v.batch(batch(0, at("a"), at("c1"), "b1", "c1"))
	d := <-deliveries
	d.Done(errors.New("not yet"))
	d.Done(nil) // only the first call counts
	d = <-deliveries
	if string(d.Data) != "b1" {
		t.Fatalf("%s before b1 is done", d.Data)
	}
	d.Done(nil)
	d = <-deliveries
	d.Done(nil)
	v.acked(0, at("c1"))
	p.end()
	if p.Stats().Failures != 1 {
		t.Errorf("%+v", p.Stats())
	}
}

func TestTokenAndChecksGoToTheNode(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	tokens := 0
	cfg.Token = func(context.Context) (string, error) {
		tokens++
		return fmt.Sprintf("t%d", tokens), nil
	}
	cfg.Checks = func() []client.Check { return []client.Check{{Name: "db", OK: true, Text: "fine"}} }
	p := start(t, cfg, j.handle)
	for i := range 2 {
		v := n.accept(t)
		if c := v.hello.GetChecks(); len(c) != 1 || c[0].GetName() != "db" || !c[0].GetOk() || c[0].GetText() != "fine" {
			t.Errorf("%v", c)
		}
		if got := authorization(v.stream.Context()); got != fmt.Sprintf("Bearer t%d", i+1) {
			t.Errorf("authorization %q", got)
		}
		v.close(errBroken)
	}
	p.end()
}

func TestRunRunsOnce(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	n.accept(t)
	if err := p.Run(t.Context()); !errors.Is(err, client.ErrRunning) {
		t.Error(err)
	}
	p.end()
}

func TestConfigurationThatMakesNoSenseIsRefused(t *testing.T) {
	j := newJournal()
	good := config(j, "127.0.0.1:1")
	token := func(context.Context) (string, error) { return "secret", nil }
	some := &client.Positions{Cluster: "c", PartitionCount: 1, Partitions: map[uint32]client.Position{0: {Head: []byte("a")}}}
	for _, tt := range []struct {
		want   string // "" where nothing is wrong
		change func(*client.Config)
	}{
		{"", func(*client.Config) {}},
		{"", func(c *client.Config) { c.Addresses = []string{"localhost:1", "[::1]:1", "dns:///127.0.0.1:1"} }},
		{"", func(c *client.Config) { c.Addresses, c.Plaintext = []string{"node:1"}, true }},
		{"", func(c *client.Config) { c.Token = token }},
		{"", func(c *client.Config) { c.Addresses, c.Token, c.TLS = []string{"node:1"}, token, &tls.Config{} }},
		{"", func(c *client.Config) {
			c.Addresses, c.Token, c.Plaintext, c.TokenInPlaintext = []string{"node:1"}, token, true, true
		}},
		{"", func(c *client.Config) { c.Start, c.Positions = client.StartResume, some }},
		{"", func(c *client.Config) { c.Start, c.Time = client.StartTime, time.Unix(1, 0) }},
		{"Addresses", func(c *client.Config) { c.Addresses = nil }},
		{"not host:port", func(c *client.Config) { c.Addresses = []string{"localhost"} }},
		{"without TLS", func(c *client.Config) { c.Addresses = []string{"node:1"} }},
		{"without TLS", func(c *client.Config) { c.Addresses, c.Token, c.TokenInPlaintext = []string{"node:1"}, token, true }},
		{"token in plaintext", func(c *client.Config) {
			c.Addresses, c.Token, c.Plaintext = []string{"localhost:1", "node:1"}, token, true
		}},
		{"token in plaintext", func(c *client.Config) { c.Addresses, c.Token, c.Plaintext = []string{"10.0.0.1:1"}, token, true }},
		{"GatewayID", func(c *client.Config) { c.GatewayID = "" }},
		{"OnNotice", func(c *client.Config) { c.OnNotice = nil }},
		{"Start", func(c *client.Config) { c.Start = 0 }},
		{"Time", func(c *client.Config) { c.Start = client.StartTime }},
		{"Time", func(c *client.Config) { c.Time = time.Unix(1, 0) }},
		{"StartResume", func(c *client.Config) { c.Positions = some }},
		{"every partition", func(c *client.Config) { c.Start, c.Positions = client.StartResume, &client.Positions{Cluster: "c"} }},
		{"Concurrency", func(c *client.Config) { c.Concurrency = -1 }},
	} {
		cfg := good
		tt.change(&cfg)
		_, err := client.New(cfg)
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("want %q: %v", tt.want, err)
		}
	}
	c, err := client.New(good)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subscribe(client.Subscription{}, j.handle) == nil || c.Subscribe(client.Subscription{ID: "s"}, nil) == nil {
		t.Error("a subscription without id or handler")
	}
}
