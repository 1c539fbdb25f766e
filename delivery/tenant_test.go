package delivery_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// costlyOn is a filter that is true, and costs more than one evaluation may on the live path where
// a condition holds.
func costlyOn(condition string) string {
	numbers := "[" + strings.Repeat("1,", 29) + "1]"
	return fmt.Sprintf("(!(%[1]s) || %[2]s.all(a, %[2]s.all(b, a + b > 0)))", condition, numbers)
}

// cheap is a filter that is true and costs little, but more than a comparison.
const cheap = "key._id + 1 > 0"

func filtered(t *testing.T, sources ...string) (all []delivery.Subscription) {
	for i, source := range sources {
		all = append(all, delivery.Subscription{ID: fmt.Sprint(i), Program: deliverytest.Compile(t, match.Filter{Source: source})})
	}
	return all
}

// A session whose filter is too costly for an event leaves the live path before it, in the middle
// of a reply, and has everything in order and once. Another session of the same identity stays.
func TestCostlyFilterLeavesBeforeTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		costly := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, costlyOn("key._id == 17"), "", cheap))
		same := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, cheap))
		own := b.open(delivery.SessionConfig{}, filtered(t, costlyOn("key._id == 17"))) // the node's own have no limits
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(30, 0)...)
		for name, s := range map[string]*delivery.Session{"costly": costly, "same": same, "own": own} {
			deliverytest.Equal(t, name, deliverytest.Refs(deliverytest.Receive(t, s, len(events))), deliverytest.Wanted(events))
			if live := s.State().Live; live == (s == costly) {
				t.Errorf("%s: live %t", name, live)
			}
		}
	})
}

// It comes back when its filters have cost little for a while, and stays away for longer each time.
func TestCostlySessionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Account: "a", CreditEvents: 1000}, filtered(t, costlyOn("key._id == 17")))
		synctest.Wait()
		id := int64(100)
		away := func() (took time.Duration) {
			source.Append(deliverytest.Inserts(1, 17)...)
			deliverytest.Receive(t, s, 1)
			synctest.Wait()
			if s.State().Live {
				t.Fatal("it is on the live path")
			}
			for begun := time.Now(); ; time.Sleep(time.Second) {
				source.Append(deliverytest.Inserts(1, id)...)
				id++
				deliverytest.Receive(t, s, 1)
				synctest.Wait()
				if s.State().Live {
					return time.Since(begun)
				}
			}
		}
		first, second := away(), away()
		if first < 5*time.Second || first > 20*time.Second || second < 3*first/2 {
			t.Errorf("away for %s and then %s", first, second)
		}
	})
}

// A session comes back though nothing happens in the log: its snapshots wait for that.
func TestCostlySessionComesBackWhileTheLogRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{Bookmark: time.Hour})
		defer b.end()
		s := b.open(delivery.SessionConfig{Account: "a", CreditEvents: 1000}, filtered(t, costlyOn("key._id == 17")))
		synctest.Wait()
		source.Append(deliverytest.Inserts(1, 17)...)
		deliverytest.Receive(t, s, 1)
		synctest.Wait()
		if s.State().Live {
			t.Fatal("it is on the live path")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !s.State().Live {
			t.Error("it stays away")
		}
	})
}

// Connecting again evades nothing; a session whose filters the index decides is not concerned.
func TestIdentityStaysAwayWhenItConnectsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		first := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, costlyOn("key._id == 17")))
		synctest.Wait()
		source.Append(deliverytest.Inserts(1, 17)...)
		synctest.Wait()
		first.Close(nil)
		synctest.Wait()
		again, decided := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, cheap)), b.open(delivery.SessionConfig{Account: "a"}, filtered(t, "key._id == 3"))
		other := b.open(delivery.SessionConfig{Account: "b"}, filtered(t, cheap))
		for range 5 {
			source.Append(deliverytest.Inserts(1, 1)...)
			synctest.Wait()
		}
		if again.State().Live || !decided.State().Live || !other.State().Live {
			t.Errorf("live: again %t, decided %t, other %t", again.State().Live, decided.State().Live, other.State().Live)
		}
		time.Sleep(20 * time.Second)
		source.Append(deliverytest.Inserts(1, 1)...)
		synctest.Wait()
		if !again.State().Live {
			t.Error("it stays away for ever")
		}
	})
}

// Identities that keep within what each may spend in a reply, but spend too much together, leave
// one by one: those that spend most.
func TestIdentityThatSpendsMostLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 1}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		half := "[" + strings.Repeat("1,", 59) + "1].all(a, a > 0) && key._id >= 0"
		large := b.open(delivery.SessionConfig{Account: "large"}, filtered(t, half, half+" ", half+"  ", half+"   "))
		small := b.open(delivery.SessionConfig{Account: "small"}, filtered(t, cheap))
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(400, 0)...) // in no time, as this clock goes
		for name, s := range map[string]*delivery.Session{"large": large, "small": small} {
			deliverytest.Equal(t, name, deliverytest.Refs(deliverytest.Receive(t, s, len(events))), deliverytest.Wanted(events))
		}
		if large.State().Live || !small.State().Live {
			t.Errorf("live: large %t, small %t", large.State().Live, small.State().Live)
		}
	})
}

// A session that wants an event in very many forms has it encoded by its own loop.
func TestManyFormsLeaveTheLivePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		var many []delivery.Subscription
		for i := range 5000 {
			many = append(many, delivery.Subscription{ID: fmt.Sprint(i), Program: deliverytest.Compile(t, match.Filter{}), Form: delivery.Form{Format: delivery.JSON, Fields: []string{"v", fmt.Sprint("x", i)}}})
		}
		s := b.open(delivery.SessionConfig{Account: "a"}, many)
		one := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, ""))
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(3, 0)...)
		deliverytest.Equal(t, "one form", deliverytest.Refs(deliverytest.Receive(t, one, len(events))), deliverytest.Wanted(events))
		seen := make(map[string]bool)
		for _, batch := range deliverytest.Receive(t, s, len(events)*len(many)) {
			for _, e := range batch.Events {
				seen[fmt.Sprintf("%x %s", e.Ref.Append(nil), e.Subscriptions)] = true
			}
		}
		if len(seen) != len(events)*len(many) {
			t.Errorf("%d of %d", len(seen), len(events)*len(many))
		}
		if s.State().Live || !one.State().Live {
			t.Errorf("live: %t, %t", s.State().Live, one.State().Live)
		}
	})
}

// The position of a quiet session that is away from the live path moves on with the log, and its
// subscriber hears of it.
func TestQuietSessionThatIsAwayMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{Bookmark: time.Second})
		defer b.end()
		s := b.open(delivery.SessionConfig{Account: "a"}, filtered(t, costlyOn("key._id == 17")+" && key._id + 1 < 0"))
		synctest.Wait()
		source.Append(deliverytest.Inserts(1, 17)...)
		synctest.Wait()
		if s.State().Live {
			t.Fatal("it is on the live path")
		}
		source.Tick(60)
		end := b.log.End()
		for at := range 5 {
			time.Sleep(time.Second)
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last := batches[len(batches)-1]
			if _, err := s.Ack(last.Seq); err != nil {
				t.Fatal(err)
			}
			if !end.After(last.To) {
				return
			}
			t.Log(at, last.To)
		}
		t.Error("its position stays where it was")
	})
}

func TestSuspensionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		f := match.Filter{Source: costlyOn("true")}
		p, _, err := b.hub.Compile(t.Context(), "a", f, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := b.open(delivery.SessionConfig{Account: "a", CreditEvents: 1 << 20}, []delivery.Subscription{{ID: "x", Program: p}})
		synctest.Wait()
		for range 100 {
			source.Append(deliverytest.Inserts(20, 0)...)
			synctest.Wait()
		}
		select {
		case <-s.Done():
		default:
			t.Fatal("it goes on")
		}
		_, notices, err := s.Receive(t.Context())
		if fault.Of(err) != fault.SessionFilterCostly || len(notices) != 1 || notices[0].Code != fault.SessionFilterCostly || notices[0].Subscription != "x" {
			t.Errorf("%v, %v", notices, err)
		}
		if _, _, err := b.hub.Compile(t.Context(), "a", f, nil); fault.Of(err) != fault.SessionFilterCostly {
			t.Errorf("right after: %v", err)
		}
		if _, _, err := b.hub.Compile(t.Context(), "b", f, nil); err != nil {
			t.Errorf("another identity: %v", err)
		}
		time.Sleep(6 * time.Minute)
		if _, _, err := b.hub.Compile(t.Context(), "a", f, nil); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

// A filter that is too costly for the documents of a snapshot does not hold up the snapshot of
// another identity: its session leaves, and is suspended when that happens again and again. Nothing
// of its own snapshot counts as read.
func TestCostlyFilterHoldsUpNobodysSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		documents := &store{log: source, exact: true, page: 4, dice: rand.New(rand.NewPCG(1, 0)), now: make(contents), times: make(map[int64]change.Timestamp)}
		const n = 12
		for id := range int64(n) {
			documents.write("insert", "orders", id)
		}
		b := begin(t, source, delivery.Config{Snapshots: documents, CreditEvents: 1 << 20})
		defer b.end()
		large := "[" + strings.Repeat("1,", 59) + "1]"
		var sources []string
		for i := range 40 { // each some 25 ms on each document
			sources = append(sources, fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, a + b + c + key._id > %[2]d)))", large, -i))
		}
		snapshots := func(subs []delivery.Subscription) []delivery.Subscription {
			for i := range subs {
				subs[i].Snapshot, subs[i].Program = true, deliverytest.Compile(t, match.Filter{DB: "shop", Coll: "orders", Source: subs[i].Program.Filter().Source})
			}
			return subs
		}
		costly := b.open(delivery.SessionConfig{Account: "a", Subscriber: "a"}, snapshots(filtered(t, sources...)))
		other := b.open(delivery.SessionConfig{Account: "b", Subscriber: "b"}, snapshots(filtered(t, "")))
		got := 0
		for got < n {
			for _, batch := range deliverytest.Receive(t, other, 1) {
				for _, e := range batch.Events {
					if e.Snapshot {
						got++
					}
				}
			}
		}
		if costly.Outlives(10 * time.Minute) {
			t.Fatal("the session with the costly filters goes on")
		}
		for _, p := range costly.State().Snapshots {
			if p.Read > 0 || p.Done {
				t.Errorf("%+v", p)
			}
		}
		if _, _, err := costly.Receive(t.Context()); fault.Of(err) != fault.SessionFilterCostly {
			t.Error(err)
		}
	})
}

// What it costs to ask whether a document has left is its identity's; subscriptions of other
// collections are not asked.
func TestManyLeaversLeaveTheLivePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 1}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		open := func(account, db string) *delivery.Session {
			var leavers []delivery.Subscription
			for i := range 3000 {
				f := match.Filter{DB: db, Source: fmt.Sprintf("key._id == %d", 1000+i)}
				leavers = append(leavers, delivery.Subscription{ID: fmt.Sprint(i), Program: deliverytest.Compile(t, f), Leaves: true, Fresh: true})
			}
			return b.open(delivery.SessionConfig{Account: account}, leavers)
		}
		asked, quiet := open("asked", "shop"), open("quiet", "quiet")
		synctest.Wait()
		source.Append(slices.Repeat([]changetest.Event{{Op: "update", Value: 1}}, 400)...) // in no time, as this clock goes
		synctest.Wait()
		if asked.State().Live || !quiet.State().Live {
			t.Errorf("live: asked %t, quiet %t", asked.State().Live, quiet.State().Live)
		}
	})
}
