package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

func TestChangesReachTheirHandlersAndAreAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2, "a")
	if h := v.hello; h.GetSubscriber() != "g" || h.GetProcessId() == "" || h.GetStartedAt().AsTime().IsZero() || h.GetRunningFor() == nil || h.GetStart() != streampb.Start_START_NOW ||
		v.says() != "" || h.GetAck() != streampb.AckMode_ACK_MODE_EXPLICIT || len(h.GetSubscriptions()) != 1 {
		t.Errorf("hello: %v", h)
	}
	told(t, j, func(c client.Connected) bool {
		return c.Address == n.address && c.Cluster == "c" && c.Node == "n" && c.PartitionCount == 2 && c.Begin == client.BeginStart
	})
	v.acked(v.batch("c1", "1:b1", "0:b2", "1:c1"))
	j.expect(t, "1:b1", "1:c1", "0:b2")
	p.end()
	if s := p.Stats(); s.Sessions != 1 || s.Batches != 2 || s.Changes != 3 || s.Duplicates != 0 || s.QueuedBytes != 0 {
		t.Errorf("%+v", s)
	}
	if says := p.next(n); says != "c1" {
		t.Errorf("it goes on at %q", says)
	}
}

func TestReconnectGoesOnWhereItIsAndDropsWhatItHas(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside, release := make(chan struct{}), make(chan struct{})
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "c2" {
			close(inside)
			<-release
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 3, "a")
	v.acked(v.batch("b1", "0:b1"))
	v.batch("d1", "0:c1", "1:c2", "0:d1")
	j.expect(t, "0:b1", "0:c1", "0:d1")
	<-inside
	v.close(errBroken)

	v = n.welcomed(t, 3, "b1")
	if h := v.hello; h.GetStart() != streampb.Start_START_RESUME || h.GetCluster() != "c" || h.GetPartitionCount() != 3 || v.says() != "b1 0:d1" {
		t.Errorf("hello: %v, at %s", h, v.says())
	}
	close(release)
	v.acked(v.batch("e1", "0:b1", "0:c1", "1:c2", "0:d1", "2:e1")) // from an earlier place
	j.expect(t, "0:b1", "0:c1", "0:d1", "1:c2", "2:e1")
	told(t, j, func(d client.Disconnected) bool {
		fault, ok := errors.AsType[*client.Error](d.Err)
		return ok && fault.Code == "STRM-NODE-STOPPING" && fault.Message == "the node stops" && fault.Remedy == "Connect to another node." && status.Code(d.Err) == codes.Unavailable
	})
	p.end()
	if s := p.Stats(); s.Duplicates != 4 || s.Sessions != 2 || s.Changes != 5 {
		t.Errorf("%+v", s)
	}
}

func TestEqualHeadsInTwoBatchesAndOverAReconnect(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1, "a")
	v.batch("b1", "0:b1")
	v.acked(v.batch("b2", "0:b2"))
	v.close(errBroken)
	v = n.welcomed(t, 1, "b2")
	if v.says() != "b2" {
		t.Errorf("it is at %q", v.says())
	}
	v.acked(v.batch("b3", "0:b3"))
	v.close(errBroken)
	v = n.welcomed(t, 1, "a")
	v.acked(v.batch("c1", "0:b2", "0:b1", "0:b4", "0:b3", "0:c1")) // another order among equal heads, and one more
	j.expect(t, "0:b1", "0:b2", "0:b3", "0:b4", "0:c1")
	p.end()
}

func TestBatchThatGotLostIsReadAgain(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2, "a")
	v.acked(1)
	v.seq++ // b1 has been lost
	v.batch("c1", "0:c1")
	told(t, j, func(d client.Disconnected) bool { return strings.Contains(d.Err.Error(), "batch 3 after 1") })
	v = n.welcomed(t, 2, "a")
	if v.says() != "a" {
		t.Errorf("it is at %q", v.says())
	}
	v.acked(v.batch("c1", "0:b1", "0:c1"))
	j.expect(t, "0:b1", "0:c1")
	p.end()
}

func TestLossesComeInTheirPlaceAndAreAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2, "a")
	v.batch("b2", "0:b1", "1:b2")
	v.batch("c2", "0:c1", "1:c2")
	v.acked(v.loss(streampb.Loss_KIND_RESYNC, "f", 0))
	v.acked(v.batch("g1", "0:g1"))
	j.expect(t, "0:b1", "1:b2", "0:c1", "1:c2", "resync history_lost", "0:g1")
	p.end()
	if s := p.Stats(); s.Losses != 1 || s.Duplicates != 0 {
		t.Errorf("%+v", s)
	}
}

// A client that is moved back goes on there, in the new generation: what follows is handled again.
func TestRewoundClientGoesBackInAllPartitions(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2, "a")
	v.acked(v.batch("c1", "0:b1", "1:c1"))
	v.loss(streampb.Loss_KIND_REWOUND, "a", 7)
	v = n.welcomed(t, 2, "a")
	if v.says() != "a" || v.hello.GetGeneration() != 7 {
		t.Errorf("hello: %v, at %s", v.hello, v.says())
	}
	v.acked(v.batch("d1", "0:b1", "1:c1", "0:d1"))
	j.expect(t, "0:b1", "1:c1", "rewound", "0:b1", "1:c1", "0:d1")
	p.end()
	if s := p.Stats(); s.Losses != 1 || s.Duplicates != 0 {
		t.Errorf("%+v", s)
	}
	if says := p.next(n); says != "d1" {
		t.Errorf("it goes on at %q", says)
	}
}

// A client that was moved back while it was not connected learns it from where its session begins.
func TestClientThatWasRewoundMeanwhileGoesBack(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 2, "a")
	v.acked(v.batch("c1", "0:b1", "1:c1"))
	v.close(errBroken)
	v = n.accept(t)
	v.welcomeAt(2, streampb.Begin_BEGIN_CHECKPOINT, 3)
	v.batch("a")
	v.acked(v.batch("d1", "0:b1", "1:c1", "0:d1"))
	j.expect(t, "0:b1", "1:c1", "rewound", "0:b1", "1:c1", "0:d1")
	v.close(errBroken)
	v = n.welcomed(t, 2, "d1")
	if v.says() != "d1" || v.hello.GetGeneration() != 3 {
		t.Errorf("hello: %v, at %s", v.hello, v.says())
	}
	p.end()
}

// unless is a handler that fails on some data so often before it deals with it.
func unless(j *journal, data string, failures int) client.Handler {
	var mu sync.Mutex
	return func(ctx context.Context, c client.Change) error {
		mu.Lock()
		defer mu.Unlock()
		if string(c.Data) == data && failures > 0 {
			failures--
			return errAway
		}
		return j.handle(ctx, c)
	}
}

func TestHandlerThatFailsIsCalledAgainInItsPlace(t *testing.T) {
	for what, event := range map[string]string{"of a partition": "0:c1", "of all": "*:c1"} {
		t.Run(what, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			p := start(t, config(j, n.address), unless(j, "c1", 4))
			v := n.welcomed(t, 2, "a")
			v.acked(v.batch("d1", "0:b1", event, "0:d1"))
			j.expect(t, "0:b1", event, "0:d1")
			p.end()
			if s := p.Stats(); s.Failures != 4 || s.Skipped != 0 || s.Changes != 3 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestPoisonIsSkippedIfTheProgramSaysSo(t *testing.T) {
	for what, event := range map[string]string{"of a partition": "0:c1", "of all": "*:c1"} {
		t.Run(what, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			cfg := config(j, n.address)
			var poison client.Poison
			cfg.Attempts = 3
			cfg.OnPoison = func(_ context.Context, p client.Poison) client.Decision {
				poison = p
				return client.Skip
			}
			p := start(t, cfg, unless(j, "c1", 1000))
			v := n.welcomed(t, 1, "a")
			v.acked(v.batch("d1", "0:b1", event, "0:d1"))
			j.expect(t, "0:b1", "0:d1")
			p.end()
			if s := p.Stats(); s.Failures != 3 || s.Skipped != 1 || poison.Attempts != 3 || poison.Change == nil || string(poison.Change.Data) != "c1" || poison.Err == nil {
				t.Errorf("%+v, %+v", s, poison)
			}
		})
	}
}

func TestPoisonEndsRunAndIsNotPassed(t *testing.T) {
	for what, event := range map[string]string{"of a partition": "0:c1", "of all": "*:c1"} {
		t.Run(what, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			p := start(t, config(j, n.address), unless(j, "c1", 1000))
			v := n.welcomed(t, 1, "a")
			first := v.batch("b1", "0:b1")
			v.batch("d1", event, "0:d1")
			acked := v.left()
			v.close(nil)
			err := p.wait()
			poison, ok := errors.AsType[*client.HandlerError](err)
			if !ok || poison.Attempts != 5 || poison.Change.Subscription != "s" || !strings.Contains(err.Error(), poison.Change.ID()) || !errors.Is(err, errAway) {
				t.Fatalf("Run returned %v", err)
			}
			j.expect(t, "0:b1")
			if acked != first {
				t.Errorf("acknowledged up to %d", acked)
			}
			if says := p.next(n); says != "b1" {
				t.Errorf("it goes on at %q", says)
			}
		})
	}
}

func TestLossThatIsNotDealtWithEndsRun(t *testing.T) {
	for _, kind := range []streampb.Loss_Kind{streampb.Loss_KIND_RESYNC, streampb.Loss_KIND_REWOUND} {
		t.Run(kind.String(), func(t *testing.T) {
			n, j := newNode(t), newJournal()
			cfg := config(j, n.address)
			cfg.OnNotice = func(ctx context.Context, n client.Notice) error {
				switch n.(type) {
				case client.Resync, client.Rewound:
					return errAway
				}
				return j.notice(ctx, n)
			}
			p := start(t, cfg, j.handle)
			v := n.welcomed(t, 1, "b")
			v.acked(1)
			v.loss(kind, "b", 1)
			if acked := v.left(); acked > 1 {
				t.Errorf("acknowledged up to %d", acked)
			}
			v.close(nil)
			poison, ok := errors.AsType[*client.HandlerError](p.wait())
			if !ok || poison.Notice == nil || poison.Attempts != 5 {
				t.Errorf("%+v", poison)
			}
			if says := p.next(n); says != "b" {
				t.Errorf("it goes on at %q", says)
			}
		})
	}
}

func TestSlowPartitionDoesNotHoldTheOthers(t *testing.T) {
	n, j := newNode(t), newJournal()
	release, entered := make(chan struct{}), make(chan struct{}, 4)
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if c.Partition == 0 || string(c.Data) == "w1" {
			entered <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 2, "a")
	v.batch("b1", "0:b1")
	for i := range 20 {
		place := string(rune('c'+i)) + "1"
		v.batch(place, "1:"+place)
		j.wait(t, "the next one", func() bool { return len(j.lines) > i })
	}
	// What is in a handler follows what the client has taken note of.
	v.batch("w1", "1:w1")
	for range 2 {
		<-entered
	}
	v.close(errBroken)
	v = n.welcomed(t, 2, "a")
	if v.says() != "a 1:v1" {
		t.Errorf("it is at %q", v.says())
	}
	close(release)
	v.acked(v.batch("w1", "0:b1", "1:c1", "1:v1", "1:w1"))
	j.wait(t, "all", func() bool { return len(j.lines) == 22 })
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
	v := n.welcomed(t, 6, "a")
	v.batch("b6", "0:b1", "1:b2", "2:b3", "3:b4", "4:b5", "5:b6")
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

// While a change waits for another attempt, other partitions are handled in its place.
func TestChangeThatWaitsForAnotherAttemptHoldsNoOther(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Concurrency, cfg.RetryWait, cfg.MaxRetryWait = 1, time.Hour, time.Hour
	p := start(t, cfg, unless(j, "b1", 1))
	v := n.welcomed(t, 2, "a")
	v.batch("c2", "0:b1", "0:b3", "1:b2", "1:c2")
	j.expect(t, "1:b2", "1:c2")
	p.end()
}

func TestHandlersInterruptedByTheEndAreNotAcknowledged(t *testing.T) {
	for what, event := range map[string]string{"of a partition": "0:c1", "of all": "*:c1"} {
		t.Run(what, func(t *testing.T) {
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
			v := n.welcomed(t, 2, "a")
			first := v.batch("b1", "0:b1")
			v.batch("d1", event, "0:d1")
			<-inside
			p.stop()
			acked := v.left()
			v.close(nil)
			if err := p.wait(); err != nil {
				t.Error(err)
			}
			if acked != first {
				t.Errorf("acknowledged up to %d", acked)
			}
			j.expect(t, "0:b1")
			if p.Stats().Failures != 0 {
				t.Error("an interruption counts as a failure")
			}
		})
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
	v := n.welcomed(t, 1, "a")
	v.batch("c1", "0:b1", "0:c1")
	v.batch("d1", "0:d1")
	<-inside
	v.close(errBroken)
	v = n.welcomed(t, 1, "a")
	if v.says() != "a" {
		t.Errorf("it is at %q, and nothing has been handled", v.says())
	}
	last := v.batch("d1", "0:b1", "0:c1", "0:d1")
	close(release)
	v.acked(last)
	j.expect(t, "0:b1", "0:c1", "0:d1")
	p.end()
}

// A change in two forms, for two subscriptions, is one: it has been handled with the last of them,
// also where the session ends between.
func TestOneChangeInTwoFormsReachesBothSubscriptions(t *testing.T) {
	for what, partition := range map[string]string{"of a partition": "0", "of all": "*"} {
		t.Run(what, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			inside, release := make(chan struct{}, 1), make(chan struct{})
			handler := func(_ context.Context, c client.Change) error {
				if c.Subscription == "s" && string(c.Data) == "b1" {
					inside <- struct{}{}
					<-release
				}
				j.write(fmt.Sprintf("%s:%s:%d:%t", c.Subscription, c.Data, c.Format, c.AllPartitions))
				return nil
			}
			p := start(t, config(j, n.address), handler)
			if err := p.Subscribe(client.Subscription{ID: "json", Format: client.JSON}, handler); err != nil {
				t.Fatal(err)
			}
			send := func(v *visit) uint64 {
				b := batch("c1", partition+":b1", partition+":b1", "0:c1")
				b.Events[1].Subscriptions, b.Events[1].Format = []string{"json"}, streampb.Format_FORMAT_JSON
				b.Events[2].Subscriptions = []string{"json", "s", "nobody"}
				return v.sendBatch(b)
			}
			v := n.welcomed(t, 1, "a")
			send(v)
			<-inside
			v.close(errBroken)
			if what == "of a partition" {
				v = n.welcomed(t, 1, "a")
				send(v)
				close(release)
			} else { // it is over when the session ends
				close(release)
				v = n.welcomed(t, 1, "a")
				send(v)
			}
			v.acked(v.seq)
			all := partition == "*"
			want := []string{fmt.Sprintf("s:b1:0:%t", all), fmt.Sprintf("json:b1:1:%t", all), "json:c1:0:false", "s:c1:0:false"}
			j.wait(t, "all", func() bool { return len(j.lines) >= 4 })
			p.end()
			if !slices.Equal(j.lines, want) {
				t.Errorf("%q, want %q", j.lines, want)
			}
		})
	}
}

func TestSubscriptionsChangeWhileItRuns(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1, "a")
	sub := client.Subscription{
		ID: "x", DB: "shop", Coll: "orders", Ops: []string{"insert"}, Filter: "doc.n > 1", Format: client.JSON, Fields: []string{"n"}, Deletes: client.DeletesNone,
	}
	if err := p.Subscribe(sub, j.handle); err != nil {
		t.Fatal(err)
	}
	if err := p.Subscribe(client.Subscription{ID: "x"}, j.handle); err == nil {
		t.Error("two subscriptions of one id")
	}
	var asked *streampb.Subscription
	for asked == nil {
		if list := v.next().GetSubscribe().GetSubscriptions(); len(list) == 1 {
			asked = list[0]
		}
	}
	if asked.GetId() != "x" || asked.GetDb() != "shop" || asked.GetColl() != "orders" || !slices.Equal(asked.GetOps(), []string{"insert"}) || asked.GetFilter() != "doc.n > 1" ||
		asked.GetFormat() != streampb.Format_FORMAT_JSON || !slices.Equal(asked.GetFields(), []string{"n"}) || asked.GetDeletes() != streampb.Deletes_DELETES_NONE {
		t.Errorf("%v", asked)
	}
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: "x"}}})
	told(t, j, func(n client.Subscribed) bool { return n.Subscription == "x" })
	p.Unsubscribe("x")
	for !slices.Equal(v.next().GetUnsubscribe().GetIds(), []string{"x"}) {
	}
	b := batch("b1", "0:b1")
	b.Events[0].Subscriptions = []string{"x"} // it was on its way
	v.acked(v.sendBatch(b))
	v.close(errBroken)
	v = n.welcomed(t, 1, "b1")
	if len(v.hello.GetSubscriptions()) != 1 {
		t.Errorf("%v", v.hello.GetSubscriptions())
	}
	p.end()
	if p.Stats().Changes != 0 {
		t.Errorf("%+v", p.Stats())
	}
}

// reject refuses a subscription.
func (v *visit) reject(id string) {
	v.t.Helper()
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: &streampb.Rejected{Id: id, Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}}})
}

// A program whose subscription is refused would receive nothing and not know it: Run ends with what
// the node says, unless the program wants to go on without.
func TestRejectedSubscriptionEndsRun(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.accept(t)
	v.welcome(1)
	v.reject("s")
	refused, isError := errors.AsType[*client.Error](p.wait())
	if !isError || refused.Code != "STRM-FILTER-X" || refused.Remedy != "r" || !strings.Contains(refused.Error(), `"s": m`) {
		t.Errorf("Run returned %v", refused)
	}

	cfg := config(j, n.address)
	var asked []client.Rejected
	cfg.OnRejected = func(_ context.Context, r client.Rejected) client.Decision {
		asked = append(asked, r)
		return client.Skip
	}
	p = start(t, cfg, j.handle)
	v = n.accept(t)
	v.welcome(1)
	v.reject("s")
	v.acked(v.batch("a"))
	p.end()
	if len(asked) != 1 || asked[0] != (client.Rejected{Subscription: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}) {
		t.Errorf("asked about %v", asked)
	}

	// One that is made while Run runs ends nothing.
	p = start(t, config(j, n.address), j.handle)
	v = n.welcomed(t, 1, "a")
	if err := p.Subscribe(client.Subscription{ID: "late"}, j.handle); err != nil {
		t.Fatal(err)
	}
	for len(v.next().GetSubscribe().GetSubscriptions()) == 0 {
	}
	v.reject("late")
	told(t, j, func(n client.Rejected) bool { return n.Subscription == "late" })
	p.end()
}

func TestRejectedSubscriptionIsToldAndForgotten(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.OnRejected = func(context.Context, client.Rejected) client.Decision { return client.Skip }
	p := start(t, cfg, j.handle)
	v := n.accept(t)
	v.welcome(1)
	v.reject("s")
	v.batch("a")
	told(t, j, func(n client.Rejected) bool {
		return n == client.Rejected{Subscription: "s", Code: "STRM-FILTER-X", Message: "m", Remedy: "r"}
	})
	v.acked(1)
	v.close(errBroken)
	v = n.welcomed(t, 1, "a")
	if len(v.hello.GetSubscriptions()) != 0 {
		t.Errorf("%v", v.hello.GetSubscriptions())
	}
	if err := p.Subscribe(client.Subscription{ID: "s"}, j.handle); err != nil {
		t.Error(err)
	}
	p.end()
}

func TestServiceNoticesHaveTheirKind(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1, "a")
	kinds := []client.ServiceKind{
		client.ShuttingDown, client.Moved, client.Degraded, client.Recovered, client.FilterFailed, client.FilterSuspended, "new",
	}
	for _, kind := range kinds {
		v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{
			Kind: string(kind), Text: "text", Partitions: []uint32{3}, Subscription: "s", Code: "STRM-X",
		}}})
		told(t, j, func(n client.Service) bool {
			return n.Kind == kind && n.Text == "text" && slices.Equal(n.Partitions, []uint32{3}) && n.Subscription == "s" && n.Code == "STRM-X"
		})
	}
	p.end()
}

// Without OnNotice nothing is lost unnoticed: Run ends, and the loss is not acknowledged.
func TestLossWithoutOnNoticeEndsRun(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.OnNotice = nil
	cfg.OnPoison = func(context.Context, client.Poison) client.Decision { return client.Skip }
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 1, "a")
	before := v.batch("b", "0:b")
	v.loss(streampb.Loss_KIND_RESYNC, "d", 0)
	err := p.wait()
	handling, is := errors.AsType[*client.HandlerError](err)
	if !is || handling.Notice == nil || handling.Attempts != 1 || !strings.Contains(err.Error(), "set Config.OnNotice") {
		t.Errorf("Run returned %v", err)
	}
	if acknowledged := v.left(); acknowledged > before {
		t.Errorf("the loss is acknowledged: %d", acknowledged)
	}
}

// Whoever names a node's HTTP port is told.
func TestWrongPortIsTold(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	j := newJournal()
	cfg := config(j, server.Listener.Addr().String())
	logged := &lines{}
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	p := start(t, cfg, j.handle)
	told(t, j, func(n client.Disconnected) bool { return strings.Contains(n.Err.Error(), "port 9090") })
	p.end()
	if text := logged.String(); !strings.Contains(text, "level=WARN msg=\"session ended; reconnecting\"") || !strings.Contains(text, "port 9090") {
		t.Errorf("%s", text)
	}
}

// lines are what a logger has written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A change of all partitions comes once, after everything before it and before everything after it,
// in whichever partition.
func TestChangeOfAllPartitionsComesBetweenBeforeAndAfter(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside, release := make(chan struct{}), make(chan struct{})
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "b1" {
			close(inside)
			<-release
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 3, "a")
	v.batch("d2", "0:b1", "1:b2", "*:c1", "1:d1", "2:d2")
	v.batch("f1", "*:e1", "*:e2", "0:f1")
	<-inside
	j.expect(t, "1:b2")
	close(release)
	v.acked(v.seq)
	j.expect(t, "1:b2", "0:b1", "*:c1", "1:d1", "2:d2", "*:e1", "*:e2", "0:f1")
	v.close(errBroken)
	v = n.welcomed(t, 3, "a")
	v.acked(v.batch("g1", "0:b1", "*:c1", "*:e1", "2:g1")) // again
	j.expect(t, "1:b2", "0:b1", "*:c1", "1:d1", "2:d2", "*:e1", "*:e2", "0:f1", "2:g1")
	p.end()
	if s := p.Stats(); s.Duplicates != 3 {
		t.Errorf("%+v", s)
	}
}

func TestPositionOfTheProgramIsWhereItBegins(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside := make(chan struct{})
	var kept []string // as a program would, with each change
	var p *program
	p = start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "c2" {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		}
		j.mu.Lock()
		kept = append(kept, p.Position().After(c).String())
		j.mu.Unlock()
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 4, "a")
	v.acked(v.batch("b2", "0:b1", "0:b2"))
	v.batch("e1", "0:c1", "1:c2", "0:d1", "2:e1")
	j.expect(t, "0:b1", "0:b2", "0:c1", "0:d1", "2:e1")
	<-inside
	p.end()

	again := newJournal()
	cfg := config(again, n.address)
	for _, text := range kept {
		position, err := client.ParsePosition(text)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Position = cfg.Position.Merge(position)
	}
	p = start(t, cfg, again.handle)
	v = n.welcomed(t, 4, "a")
	if v.says() != "b2 0:d1 2:e1" || v.hello.GetCluster() != "c" || v.hello.GetPartitionCount() != 4 || v.hello.GetStart() != streampb.Start_START_RESUME {
		t.Errorf("at %q: %v", v.says(), v.hello)
	}
	v.acked(v.batch("e2", "0:b1", "0:b2", "0:c1", "1:c2", "0:d1", "2:e1", "2:e2"))
	again.expect(t, "1:c2", "2:e2")
	p.end()
}

// What several subscriptions get of one change is one step of the program's position: one that was
// saved between them is before the change, which comes again for all of them.
func TestPositionIsNeverWithinAChange(t *testing.T) {
	for what, tc := range map[string]struct {
		partition string
		two       bool // events, as of a change that one subscription gets and after which the document leaves the other
	}{
		"a document leaves": {"0", true}, "of all partitions": {"*", true}, "one form": {"0", false},
	} {
		t.Run(what, func(t *testing.T) {
			n, j := newNode(t), newJournal()
			kept := make(chan client.Position, 1)
			var p *program
			handler := func(ctx context.Context, c client.Change) error {
				j.write(c.Subscription + ":" + string(c.Data))
				if string(c.Data) == "b1" {
					kept <- p.Position().After(c)
					<-ctx.Done() // the process is killed: nothing of it is acknowledged
					return ctx.Err()
				}
				return nil
			}
			send := func(v *visit) uint64 {
				b := batch("b1", tc.partition+":b1")
				if b.Events[0].Subscriptions = []string{"s", "t"}; tc.two {
					b = batch("b1", tc.partition+":b1", tc.partition+":b1")
					b.Events[1].Subscriptions = []string{"t"}
				}
				return v.sendBatch(b)
			}
			run := func(cfg client.Config, handler client.Handler) {
				p = start(t, cfg, handler)
				if err := p.Subscribe(client.Subscription{ID: "t"}, handler); err != nil {
					t.Fatal(err)
				}
			}
			run(config(j, n.address), handler)
			send(n.welcomed(t, 1, "a"))
			position := <-kept
			p.end()

			again := newJournal()
			cfg := config(again, n.address)
			cfg.Position = position
			run(cfg, func(_ context.Context, c client.Change) error {
				again.write(c.Subscription + ":" + string(c.Data))
				return nil
			})
			v := n.welcomed(t, 1, "a")
			if v.says() != "a" {
				t.Fatalf("it goes on at %q, within the change", v.says())
			}
			v.acked(send(v))
			again.expect(t, "s:b1", "t:b1")
			p.end()
		})
	}
}

func TestSubscriberBeginsAtItsCheckpoint(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start = client.StartResume
	p := start(t, cfg, j.handle)
	v := n.accept(t)
	if v.hello.GetStart() != streampb.Start_START_RESUME || v.says() != "" {
		t.Errorf("%v", v.hello)
	}
	v.welcomeAt(2, streampb.Begin_BEGIN_CHECKPOINT, 4)
	v.batch("b1")
	told(t, j, func(c client.Connected) bool { return c.Begin == client.BeginCheckpoint })
	v.acked(v.batch("c1", "1:c1"))
	v.close(errBroken)
	v = n.welcomed(t, 2, "c1")
	if v.says() != "c1" || v.hello.GetGeneration() != 4 {
		t.Errorf("at %q: %v", v.says(), v.hello)
	}
	j.expect(t, "1:c1")
	p.end()
}

func TestStartIsRepeatedUntilItIsKnownWhereItWas(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start, cfg.Time = client.StartTime, time.Unix(5, 0)
	p := start(t, cfg, j.handle)
	v := n.accept(t)
	v.welcome(2)
	v.close(errBroken)
	v = n.accept(t)
	if v.hello.GetStart() != streampb.Start_START_TIME || v.hello.GetTime().GetSeconds() != 5 || !p.Position().IsZero() {
		t.Errorf("%v", v.hello)
	}
	j.mu.Lock()
	for _, n := range j.notices {
		if _, connected := n.(client.Connected); connected {
			t.Error("told that it is connected, and what happens now may be missed")
		}
	}
	j.mu.Unlock()
	v.welcome(2)
	v.batch("a")
	told(t, j, anyOf[client.Connected])
	v.close(errBroken)
	v = n.welcomed(t, 2, "a")
	if v.says() != "a" || v.hello.GetStart() != streampb.Start_START_RESUME {
		t.Errorf("at %q: %v", v.says(), v.hello)
	}
	p.end()
}

func TestAnotherNumberOfPartitionsBeginsWhereAllHaveBeen(t *testing.T) {
	n, j := newNode(t), newJournal()
	inside := make(chan struct{})
	var once sync.Once
	p := start(t, config(j, n.address), func(ctx context.Context, c client.Change) error {
		interrupted := false
		if string(c.Data) == "c1" {
			once.Do(func() {
				close(inside)
				<-ctx.Done()
				interrupted = true
			})
		}
		if interrupted {
			return ctx.Err()
		}
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 2, "a")
	v.acked(v.batch("b1", "1:b1"))
	v.batch("d1", "1:c1", "0:d1")
	<-inside
	j.expect(t, "1:b1", "0:d1")
	v.close(errBroken)
	v = n.accept(t)
	if v.hello.GetPartitionCount() != 2 || v.says() != "b1 0:d1" {
		t.Errorf("at %q: %v", v.says(), v.hello)
	}
	v.welcome(3)
	v.batch("b1")
	v.acked(v.batch("d1", "2:b1", "2:c1", "2:d1"))
	j.expect(t, "1:b1", "0:d1", "2:c1", "2:d1")
	v.close(errBroken)
	v = n.welcomed(t, 3, "d1")
	if v.hello.GetPartitionCount() != 3 || v.says() != "d1" {
		t.Errorf("at %q: %v", v.says(), v.hello)
	}
	p.end()
}

func TestEveryAddressIsTried(t *testing.T) {
	n, j := newNode(t), newJournal()
	gone := newNode(t) // refuses to serve
	var refusing sync.WaitGroup
	refusing.Go(func() { (<-gone.visits).close(errBroken) })
	p := start(t, config(j, gone.address, n.address), j.handle)
	n.welcomed(t, 1, "a")
	told(t, j, func(d client.Disconnected) bool { return d.Address == gone.address })
	told(t, j, func(c client.Connected) bool { return c.Address == n.address })
	refusing.Wait()
	p.end()
}

// stops tells the client that the node stops.
func (v *visit) stops() {
	v.t.Helper()
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: "shutting_down", Text: "text"}}})
}

// A node that stops serves on until another node does, however long that takes.
func TestNodeThatStopsIsLeftWhenAnotherServes(t *testing.T) {
	old, busy, next, j := newNode(t), newNode(t), newNode(t), newJournal()
	p := start(t, config(j, old.address, busy.address, next.address), j.handle)
	before := old.welcomed(t, 2, "a")
	before.acked(before.batch("b1", "0:b1"))
	before.stops()
	busy.accept(t).close(errBroken) // which is no reason to leave the other
	after := next.accept(t)
	if after.hello.GetStart() != streampb.Start_START_RESUME || after.says() != "b1" {
		t.Errorf("hello: %v", after.hello)
	}
	before.acked(before.batch("c1", "0:c1"))
	after.welcome(2)
	after.acked(after.batch("b1")) // it has yet to come so far
	before.acked(before.batch("d1", "1:d1"))
	after.batch("c1", "0:c1")
	before.left()
	after.acked(after.batch("e1", "1:d1", "0:e1"))
	j.expect(t, "0:b1", "0:c1", "1:d1", "0:e1")
	p.end()
	if s := p.Stats(); s.Duplicates != 2 || s.Sessions != 2 {
		t.Errorf("%+v", s)
	}
}

// Where there is no other address, or it is not known yet where to go on, the session goes on until
// the node ends it.
func TestNodeThatStopsServesClientsThatCannotGoElsewhere(t *testing.T) {
	for name, tt := range map[string]struct{ alone, begun bool }{"one address": {true, true}, "nothing known": {false, false}} {
		t.Run(name, func(t *testing.T) {
			n, other, j := newNode(t), newNode(t), newJournal()
			addresses := []string{n.address, other.address}
			if tt.alone {
				addresses = addresses[:1]
			}
			p := start(t, config(j, addresses...), j.handle)
			v := n.accept(t)
			v.welcome(2)
			if tt.begun {
				v.batch("a")
			}
			v.stops()
			told(t, j, func(n client.Service) bool { return n.Kind == client.ShuttingDown })
			v.acked(v.batch("b1", "0:b1"))
			v.close(errBroken)
			if tt.alone {
				other = n
			}
			v = other.welcomed(t, 2, "a")
			v.acked(v.seq)
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
		{"needs a Subscriber or a Position", status.Error(codes.NotFound, "STRM-SESSION-UNKNOWN: nothing"), false, true},
		{"no node", status.Error(codes.Unimplemented, "unknown service"), false, true},
		{"a log that is gone", status.Error(codes.FailedPrecondition, "STRM-LOG-AHEAD: later"), true, true},
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
				v.acked(v.batch("a"))
			}
			v.close(tt.err)
			if !tt.final {
				n.welcomed(t, 1, "a")
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
	n, other, j := newNode(t), newNode(t), newJournal()
	p := start(t, config(j, n.address, other.address), j.handle)
	v := n.welcomed(t, 1, "a")
	v.acked(1)
	v.close(errBroken)
	v = other.accept(t)
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{Cluster: "d", PartitionCount: 1}}})
	if err := p.wait(); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("Run returned %v", err)
	}
}

func TestMessagesThatMakeNoSenseEndTheSession(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	times := 0
	refused := func(v *visit) {
		t.Helper()
		times++
		j.wait(t, "the end of the session", func() bool {
			so := 0
			for _, n := range j.notices {
				if d, ok := n.(client.Disconnected); ok && strings.Contains(d.Err.Error(), "protocol") {
					so++
				}
			}
			return so == times
		})
		v.close(nil)
	}
	both := batch("b1", "0:b1")
	both.Loss = &streampb.Loss{}
	short := batch("b1", "0:b1")
	short.Events[0].Position = []byte("b1")
	for _, b := range []*streampb.Batch{
		batch("b1", "1:b1"), both, short, batch("0"), {To: []byte("b1")}, {}, {To: at("b"), Attached: []uint32{0}}, {To: at("b"), Attached: []uint32{1}},
	} {
		v := n.welcomed(t, 1, "a")
		v.sendBatch(b)
		refused(v)
	}
	for _, welcome := range []*streampb.Welcome{nil, {Cluster: "c"}, {Cluster: "c", PartitionCount: 1 << 30}} {
		v := n.accept(t)
		m := &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: welcome}}
		if welcome == nil {
			m.Message = &streampb.ConnectResponse_Heartbeat{}
		}
		v.send(m)
		refused(v)
	}
	n.accept(t)
	p.end()
	j.expect(t)
}

func TestAcksCanBeLeftToTheNode(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Acks = client.AckAuto
	p := start(t, cfg, j.handle)
	v := n.welcomed(t, 1, "a")
	v.batch("b1", "0:b1")
	j.expect(t, "0:b1")
	p.end()
	if acked := v.left(); acked > 0 || v.hello.GetAck() != streampb.AckMode_ACK_MODE_AUTO {
		t.Errorf("acknowledged up to %d, %v", acked, v.hello)
	}
}

func TestChannelWaitsUntilAChangeIsDone(t *testing.T) {
	n, j := newNode(t), newJournal()
	deliveries := make(chan client.Delivery)
	p := start(t, config(j, n.address), client.Channel(deliveries))
	v := n.welcomed(t, 1, "a")
	v.batch("c1", "0:b1", "0:c1")
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
	v.acked(v.seq)
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
		{"", func(c *client.Config) { c.Start = client.StartResume }},
		{"", func(c *client.Config) { c.Start, c.Time = client.StartTime, time.Unix(1, 0) }},
		{"", func(c *client.Config) { c.Subscriber = "" }},
		{"Addresses", func(c *client.Config) { c.Addresses = nil }},
		{"not host:port", func(c *client.Config) { c.Addresses = []string{"localhost"} }},
		{"without TLS", func(c *client.Config) { c.Addresses = []string{"node:1"} }},
		{"without TLS", func(c *client.Config) { c.Addresses, c.Token, c.TokenInPlaintext = []string{"node:1"}, token, true }},
		{"token in plaintext", func(c *client.Config) {
			c.Addresses, c.Token, c.Plaintext = []string{"localhost:1", "node:1"}, token, true
		}},
		{"token in plaintext", func(c *client.Config) { c.Addresses, c.Token, c.Plaintext = []string{"10.0.0.1:1"}, token, true }},
		{"", func(c *client.Config) { c.OnNotice = nil }},
		{"Start", func(c *client.Config) { c.Start = 0 }},
		{"needs a Subscriber or a Position", func(c *client.Config) { c.Start, c.Subscriber = client.StartResume, "" }},
		{"Time", func(c *client.Config) { c.Start = client.StartTime }},
		{"Time", func(c *client.Config) { c.Time = time.Unix(1, 0) }},
		{"Concurrency", func(c *client.Config) { c.Concurrency = -1 }},
		{"Acks", func(c *client.Config) { c.Acks = 3 }},
		{"AckManual needs Partitions All", func(c *client.Config) { c.Acks, c.Partitions = client.AckManual, client.Owned }},
		{"StartSnapshot needs", func(c *client.Config) { c.Acks, c.Start = client.AckAuto, client.StartSnapshot }},
		{"", func(c *client.Config) { c.Acks, c.Start = client.AckManual, client.StartSnapshot }},
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
