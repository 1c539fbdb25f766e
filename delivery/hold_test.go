package delivery_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// ordersOf returns a store of n orders, whose pages have so many of them.
func ordersOf(exact bool, page int, n int64) (*oplogtest.Log, *store) {
	source := &oplogtest.Log{}
	source.Tick(1)
	s := &store{
		log: source, exact: exact, page: page, dice: rand.New(rand.NewPCG(1, 0)), now: make(contents), times: make(map[int64]change.Timestamp),
		several: make(map[change.Timestamp]bool),
	}
	for id := range n {
		s.write("insert", "orders", id)
	}
	return source, s
}

// documents returns the _ids of all orders that a session is sent until its snapshot is done, with
// the newest v of each, and acknowledges them.
func documents(t *testing.T, s *delivery.Session) map[int64]int64 {
	t.Helper()
	got := make(map[int64]int64)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for {
		batches, _, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("after %v: %v, %+v", slices.Sorted(maps.Keys(got)), err, s.Snapshots())
		}
		for _, b := range batches {
			receive(t, s, b, got)
			if b.Snapshot != nil && b.Snapshot.State == delivery.SnapshotDone {
				return got
			}
		}
	}
}

// receive adds the documents of a batch to those that a session was sent, and acknowledges it.
func receive(t *testing.T, s *delivery.Session, b *delivery.Batch, got map[int64]int64) {
	t.Helper()
	for i := range b.Events {
		raw := change.Value{Type: change.TypeDocument, Data: b.Payload(i)}
		id, _ := raw.Lookup("documentKey").Lookup("_id").Int64()
		v, _ := raw.Lookup("fullDocument").Lookup("v").Int64()
		got[id] = max(got[id], v)
	}
	if _, err := s.Ack(b.Seq); err != nil {
		t.Fatal(err)
	}
}

func wantAll(t *testing.T, got map[int64]int64, n int64) {
	t.Helper()
	for id := range n {
		if _, there := got[id]; !there {
			t.Errorf("document %d is missing", id)
		}
	}
}

func orders(t *testing.T, ops ...string) []delivery.Subscription {
	f := match.Filter{DB: "shop", Coll: "orders"}
	if len(ops) > 0 {
		var err error
		if f.Ops, err = match.ParseOps(ops); err != nil {
			t.Fatal(err)
		}
	}
	return []delivery.Subscription{{ID: "orders", Program: deliverytest.Compile(t, f), Snapshot: true}}
}

// A session that begins beside a slow one, which holds a scan up, gets every document, whatever has
// changed before it came.
func TestSessionBesideASlowOneGetsEverything(t *testing.T) {
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprint(exact), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, docs := ordersOf(exact, 2, 6)
				b := begin(t, source, delivery.Config{Snapshots: docs})
				defer b.end()
				slow := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: 5}, orders(t))
				time.Sleep(100 * time.Millisecond)
				docs.write("insert", "orders", 2) // replaces it
				synctest.Wait()
				b2 := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t))
				wantAll(t, documents(t, b2), 6)
				wantAll(t, documents(t, slow), 6)
			})
		})
	}
}

// A change that a subscription does not want hides no document of its snapshot.
func TestHiddenChangeHidesNoDocument(t *testing.T) {
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprint(exact), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, docs := ordersOf(exact, 2, 6)
				b := begin(t, source, delivery.Config{Snapshots: docs})
				defer b.end()
				s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t, "insert", "delete"))
				go func() {
					for range 200 { // while every page is read
						docs.write("insert", "orders", 3)
						time.Sleep(time.Millisecond)
					}
				}()
				wantAll(t, documents(t, s), 6)
				time.Sleep(time.Second)
			})
		})
	}
}

// A document that changes all the time holds up no snapshot, at any rate.
func TestHotDocumentHoldsNothingUp(t *testing.T) {
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprint(exact), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, page = 200, 10
				source, docs := ordersOf(exact, page, n)
				b := begin(t, source, delivery.Config{Snapshots: docs, SnapshotPage: page, SnapshotRate: rate.NewLimiter(100, page)})
				defer b.end()
				s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t))
				stop := make(chan struct{})
				go func() {
					tick := time.NewTicker(2 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-stop:
							return
						case <-tick.C:
							docs.write("update", "orders", 5)
						}
					}
				}()
				begun := time.Now()
				wantAll(t, documents(t, s), n)
				close(stop)
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("%d documents at 100 a second took %s", n, took)
				}
			})
		})
	}
}

// A document that changes all the time, whose changes do not say what they did, comes as it was
// read after a few tries: no page waits for it without end.
func TestUntoldChangesHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, hot = 4, 2
		source, docs := ordersOf(false, n, n)
		docs.untold = true
		b := begin(t, source, delivery.Config{Snapshots: docs})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t, "insert", "delete"))
		writing, stop := context.WithCancel(t.Context())
		go func() {
			tick := time.NewTicker(300 * time.Microsecond)
			defer tick.Stop()
			for {
				select {
				case <-writing.Done():
					return
				case <-tick.C:
					docs.write("update", "orders", hot)
				}
			}
		}()
		begun := time.Now()
		time.AfterFunc(30*time.Second, stop)
		wantAll(t, documents(t, s), n)
		stop()
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%d documents took %s", n, took)
		}
	})
}

// A document that changes all the time is placed where it was so, also where a server cannot read
// at a time: no change after it is older.
func TestHotDocumentNeverGoesBack(t *testing.T) {
	update := func(docs *store, id int64) { docs.write("update", "orders", id) }
	for name, c := range map[string]struct {
		ops    []string
		change func(*store, int64)
	}{
		"all operations":     {change: update},
		"updates are hidden": {ops: []string{"insert", "delete"}, change: update},
		"several at a time":  {change: func(docs *store, id int64) { docs.transaction("orders", id) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				source, docs := ordersOf(false, 4, n)
				source.ReplyEvents, source.Delay = 1, 100*time.Microsecond // replies end within a time
				docs.brief = true
				b := begin(t, source, delivery.Config{Snapshots: docs})
				defer b.end()
				s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t, c.ops...))
				stop := make(chan struct{})
				go func() {
					tick := time.NewTicker(390 * time.Microsecond)
					defer tick.Stop()
					for i := range int64(300) {
						select {
						case <-stop:
							return
						case <-tick.C:
							c.change(docs, 5+i%2)
						}
					}
				}()
				last, pages := make(map[int64]int64), make(map[int64]int)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for done := false; !done; {
					batches, _, err := s.Receive(ctx)
					if err != nil {
						t.Error(err)
						break
					}
					for _, batch := range batches {
						for i := range batch.Events {
							id, v := stateOf(batch, i)
							if v < last[id] {
								t.Errorf("document %d goes back from %d to %d", id, last[id], v)
							}
							if last[id] = v; batch.Events[i].Snapshot {
								pages[id]++
								docs.wantPlaced(t, batch, i)
							}
						}
						if _, err := s.Ack(batch.Seq); err != nil {
							t.Fatal(err)
						}
						done = done || batch.Snapshot != nil && batch.Snapshot.State == delivery.SnapshotDone
					}
				}
				close(stop)
				for id := range int64(n) {
					if pages[id] != 1 {
						t.Errorf("document %d came %d times", id, pages[id])
					}
				}
			})
		})
	}
}

// stateOf returns the document of an event, and its v after it.
func stateOf(b *delivery.Batch, i int) (id, v int64) {
	raw := change.Value{Type: change.TypeDocument, Data: b.Payload(i)}
	id, _ = raw.Lookup("documentKey").Lookup("_id").Int64()
	v, full := raw.Lookup("fullDocument").Lookup("v").Int64()
	if !full {
		v, _ = raw.Lookup("updateDescription").Lookup("updatedFields").Lookup("v").Int64()
	}
	return id, v
}

// wantPlaced reports a document of a snapshot that is not what the collection had at its place.
func (s *store) wantPlaced(t *testing.T, b *delivery.Batch, i int) {
	t.Helper()
	id, v := stateOf(b, i)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := b.Events[i].Ref.Time().Prev(); s.at(at)["orders"][id].v != v {
		t.Errorf("document %d comes at %s as %d, it was %d then", id, at, v, s.at(at)["orders"][id].v)
	}
}

// The large snapshots of one identity do not hold up a small one of another.
func TestLargeSnapshotsOfOneHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const page = 10
		source, docs := ordersOf(true, page, 20)
		for id := range int64(150) {
			for c := range 6 {
				docs.write("insert", fmt.Sprint("large", c), id)
			}
		}
		b := begin(t, source, delivery.Config{Snapshots: docs, SnapshotPage: page, SnapshotRate: rate.NewLimiter(100, page)})
		defer b.end()
		for c := range 6 {
			b.open(delivery.SessionConfig{Identity: "large", Start: delivery.Place{At: b.log.End()}}, []delivery.Subscription{{
				ID: "all", Program: deliverytest.Compile(t, match.Filter{DB: "shop", Coll: fmt.Sprint("large", c)}), Snapshot: true,
			}})
		}
		time.Sleep(time.Second)
		small := b.open(delivery.SessionConfig{Identity: "small", Start: delivery.Place{At: b.log.End()}}, orders(t))
		begun := time.Now()
		wantAll(t, documents(t, small), 20)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("two pages at ten a second took %s", took)
		}
	})
}

// What an operator has asked for is left for a subscriber that comes back without having
// acknowledged what it was sent before.
func TestAcceptedSnapshotIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, docs := ordersOf(true, 10, 6)
		b := begin(t, source, delivery.Config{Snapshots: docs})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t))
		wantAll(t, documents(t, s), 6)
		docs.write("insert", "orders", 7) // which is not acknowledged
		synctest.Wait()
		if done, _ := s.Operate(delivery.BeginSnapshot, "", change.Namespace{}); done != 1 {
			t.Fatalf("%d begun", done)
		}
		left := s.State().Snapshots
		if len(left) != 1 || left[0].Done || left[0].Reason != snapshot.Operator {
			t.Errorf("%+v", left)
		}
	})
}

// A partition that is attached after a loss, which its subscriber has had from another node, gets
// the documents that compensate for it, also if those of the other partitions have come.
func TestAttachedPartitionGetsWhatALossOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, docs := ordersOf(true, 10, 40)
		docs.write("insert", "other", 1)
		b := begin(t, source, delivery.Config{Snapshots: docs, Recover: []change.Namespace{{DB: "shop", Coll: "orders"}}})
		defer b.end()
		s := b.open(delivery.SessionConfig{Attached: true}, deliverytest.Everything(t))
		attach := func(first, last change.Partition) {
			places := make(map[change.Partition]delivery.Place)
			for p := first; p < last; p++ {
				places[p] = delivery.Place{At: b.log.End()}
			}
			if err := s.Attach(places, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		attach(0, partitions/2)
		synctest.Wait()
		for id := range int64(40) {
			docs.write("insert", "other", id)
		}
		synctest.Wait()
		docs.write("rename", "other", 0)
		had := documents(t, s)
		attach(partitions/2, partitions)
		maps.Copy(had, documents(t, s))
		wantAll(t, had, 40)
	})
}

// A partition whose snapshot was done for another filter gets the documents for this one, when it
// is attached as when the session is opened.
func TestAttachedPartitionGetsTheDocumentsOfItsFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, docs := ordersOf(true, 10, 40)
		b := begin(t, source, delivery.Config{Snapshots: docs})
		defer b.end()
		subscriptions := orders(t)
		places, list := make(map[change.Partition]delivery.Place), []change.Partition(nil)
		for p := range change.Partition(partitions) {
			places[p], list = delivery.Place{At: b.log.End()}, append(list, p)
		}
		of := func(filter uint64) []snapshot.Progress {
			return []snapshot.Progress{{Subscription: "orders", Filter: filter, Reason: snapshot.Start, Listed: true, Done: true, Partitions: list, At: change.Timestamp{T: 1}}}
		}
		attached := func(filter uint64) *delivery.Session {
			s := b.open(delivery.SessionConfig{Attached: true}, []delivery.Subscription{{ID: "orders", Program: subscriptions[0].Program}})
			s.Owe(of(filter))
			if err := s.Attach(places, nil, nil); err != nil {
				t.Fatal(err)
			}
			return s
		}
		wantAll(t, documents(t, attached(1)), 40)
		if left := delivery.Unread(attached(delivery.FilterHash(subscriptions[0].Program)).Snapshots()); len(left) > 0 {
			t.Errorf("of the same filter %+v are left", left)
		}
	})
}

// A partition that is attached between a page and the documents of it that are still owed gets all
// of that page, also where it owes the same as the others: what they have had of it, it has not.
func TestPartitionAttachedWithinAPageGetsAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, page = 40, 8
		source, docs := ordersOf(false, page, n)
		b := begin(t, source, delivery.Config{Snapshots: docs, SnapshotPage: page, SnapshotRate: rate.NewLimiter(page, page)})
		defer b.end()
		s := b.open(delivery.SessionConfig{Attached: true}, orders(t))
		attach := func(first, last change.Partition) (list []change.Partition) {
			places := make(map[change.Partition]delivery.Place)
			for p := first; p < last; p++ {
				places[p], list = delivery.Place{At: b.log.End()}, append(list, p)
			}
			if err := s.Attach(places, nil, nil); err != nil {
				t.Fatal(err)
			}
			return list
		}
		attach(0, partitions/2)
		stop := make(chan struct{})
		go func() { // a document of the first page, which is owed then
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					docs.write("update", "orders", 1)
				}
			}
		}()
		had := make(map[int64]int64)
		for read := false; !read; {
			for _, batch := range deliverytest.Receive(t, s, 1) {
				read = read || len(batch.Events) > 0 && batch.Events[0].Snapshot
				receive(t, s, batch, had)
			}
		}
		left := s.Snapshots()
		if len(left) != 1 || !left[0].Listed || !left[0].Left[0].IsFresh() {
			t.Fatalf("the page is over, or has not begun: %+v", left)
		}
		for p := change.Partition(partitions / 2); p < partitions; p++ {
			left[0].Partitions = append(left[0].Partitions, p)
		}
		s.Owe(left)
		attach(partitions/2, partitions)
		maps.Copy(had, documents(t, s))
		close(stop)
		wantAll(t, had, n)
	})
}

// Partitions that are attached while a snapshot runs get what had been read before they came,
// whatever it was begun for and how often that happens.
func TestAttachedPartitionsJoinASnapshot(t *testing.T) {
	for name, subscriptions := range map[string][]delivery.Subscription{"one collection": orders(t), "all collections": deliverytest.Everything(t)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, docs := ordersOf(true, 4, 200)
				docs.write("insert", "other", 1)
				b := begin(t, source, delivery.Config{Snapshots: docs})
				defer b.end()
				subscriptions[0].Snapshot = false
				s := b.open(delivery.SessionConfig{Attached: true, CreditEvents: 8}, subscriptions)
				attach := func(first, last change.Partition) {
					places := make(map[change.Partition]delivery.Place)
					for p := first; p < last; p++ {
						places[p] = delivery.Place{At: b.log.End()}
					}
					if err := s.Attach(places, nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				attach(0, partitions/2)
				synctest.Wait()
				if done, _ := s.Operate(delivery.BeginSnapshot, "", change.Namespace{}); done != 1 {
					t.Fatalf("%d begun", done)
				}
				had := make(map[int64]int64)
				for p := change.Partition(partitions / 2); p < partitions; p++ {
					for some := 0; some < 6; { // is read before the next partition comes
						for _, batch := range deliverytest.Receive(t, s, 1) {
							some += len(batch.Events)
							receive(t, s, batch, had)
							if batch.Snapshot != nil && batch.Snapshot.State == delivery.SnapshotDone {
								t.Fatal("done although partitions come")
							}
						}
						synctest.Wait()
					}
					attach(p, p+1)
					if left := s.State().Snapshots; len(left) != 1 || left[0].Done {
						t.Errorf("left when a partition has come: %+v", left)
					}
				}
				maps.Copy(had, documents(t, s))
				wantAll(t, had, 200)
			})
		})
	}
}
