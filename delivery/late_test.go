package delivery_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// examined returns how many documents were read so far.
func (s *shelf) examined() (n int64) {
	for _, q := range s.asked() {
		first, end := int64(0), s.documents
		if !q.From.IsZero() {
			first = idOf(q.From)
		}
		if !q.Until.IsZero() {
			end = idOf(q.Until)
		}
		n += min(end-first, int64(min(s.page, q.Documents)))
	}
	return n
}

// read counts the documents of a snapshot until its end, how often each. Whenever it has so many
// more, it pauses.
func read(t *testing.T, s *delivery.Session, every int, pause time.Duration) map[int64]int {
	got, next := make(map[int64]int), every
	for {
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Error(err)
			return got
		}
		done := false
		for _, b := range batches {
			for i := range b.Events {
				id, _ := stateOf(b, i)
				got[id]++
			}
			done = done || b.Snapshot != nil && b.Snapshot.State == delivery.SnapshotDone
		}
		if len(got) >= next {
			next += every
			time.Sleep(pause)
		}
		if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
			t.Error(err)
		}
		if done {
			return got
		}
	}
}

// continues returns the progress of a snapshot of orders that continues at a document.
func continues(sub delivery.Subscription, from int64) []snapshot.Progress {
	return remains(sub, snapshot.Left{From: idValue(from)})
}

// remains returns the progress of a snapshot of orders of which something is left.
func remains(sub delivery.Subscription, left snapshot.Left) []snapshot.Progress {
	left.Namespace = change.Namespace{DB: "shop", Coll: "orders"}
	return []snapshot.Progress{{
		Subscription: sub.ID, Filter: delivery.FilterHash(sub.Program), Reason: snapshot.Start, Listed: true, Left: []snapshot.Left{left},
	}}
}

// Readers that are too late for a page do not read the rest for themselves: however many they are,
// and in whatever order they come, the work is that of a few scans, and each document comes once.
func TestLateReadersShareTheirScans(t *testing.T) {
	const documents, readers = 200, 12
	for name, each := range map[string]struct {
		every func(i int) int
		pause time.Duration
		from  func(i int) int64
		most  int64 // scans
	}{
		"again and again": {every: func(i int) int { return 40 + 3*i }, pause: 3 * time.Second, most: 4},
		"after a restart": {every: func(int) int { return 2 * documents }, from: func(i int) int64 { return int64(i*117) % documents }, most: 4},
		"after a restart, each before the others": {
			every: func(int) int { return 2 * documents }, from: func(i int) int64 { return int64(16 * (readers - 1 - i)) }, most: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				docs := &shelf{collections: []string{"orders"}, documents: documents, page: 10, takes: 100 * time.Millisecond}
				b := onShelf(t, docs, delivery.Config{})
				defer b.end()
				var running sync.WaitGroup
				for i := range readers {
					cfg, from := delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: 40}, int64(0)
					subscriptions := collection(t, "orders")
					if each.from != nil {
						from = each.from(i)
						cfg.Snapshots = continues(subscriptions[0], from)
					}
					s := b.open(cfg, subscriptions)
					synctest.Wait() // they come in this order
					running.Go(func() {
						got := read(t, s, each.every(i), each.pause)
						for id := from; id < documents; id++ {
							if got[id] != 1 {
								t.Errorf("reader %d got document %d %d times", i, id, got[id])
								return
							}
						}
					})
				}
				running.Wait()
				if n := docs.examined(); n > each.most*documents {
					t.Errorf("%s: %d documents were read for %d late readers of %d", name, n, readers, documents)
				}
			})
		})
	}
}

// Of an identity with two scans of a collection, a further reader waits, and gets its documents
// though nothing comes to its place; another identity does not wait. Nothing is kept of one that
// ends.
func TestReadersWaitForScansOfTheirIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10, read: func(snapshot.Query) { <-read }}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		open := func(identity string, from int64) *delivery.Session {
			subscriptions := collection(t, "orders")
			return b.open(delivery.SessionConfig{
				Identity: identity, Start: delivery.Place{At: b.log.End()}, Snapshots: continues(subscriptions[0], from),
			}, subscriptions)
		}
		first := open("many", 50)
		synctest.Wait()
		second := open("many", 70)
		synctest.Wait()
		waits, ends := open("many", 5), open("many", 15)
		leaves := open("many", 15)
		other := open("other", 25)
		synctest.Wait()
		if asked := docs.asked(); len(asked) != 3 {
			t.Errorf("%d pages are being read, want two of one identity and one of another", len(asked))
		}
		leaves.Unsubscribe([]string{"orders"})
		synctest.Wait()
		if text := b.hub.Scans(); !strings.Contains(text, "parked 2 ") {
			t.Errorf("%s, want two that wait", text)
		}
		ends.Close(nil)
		synctest.Wait()
		if text := b.hub.Scans(); !strings.Contains(text, "parked 1 ") {
			t.Errorf("%s, want one that waits", text)
		}
		first.Close(nil)
		second.Close(nil)
		close(read)
		for s, from := range map[*delivery.Session]int64{waits: 5, other: 25} {
			if got := documents(t, s); int64(len(got)) != 100-from {
				t.Errorf("the reader from %d got %d documents", from, len(got))
			}
		}
		synctest.Wait()
		if text := b.hub.Scans(); !strings.Contains(text, "parked 0 ") {
			t.Errorf("%s, want nobody that waits", text)
		}
	})
}

// texts counts the documents of a snapshot whose _ids are strings, until its end.
func texts(t *testing.T, s *delivery.Session) map[string]int {
	t.Helper()
	got := make(map[string]int)
	for {
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := false
		for _, b := range batches {
			for i := range b.Events {
				raw := change.Value{Type: change.TypeDocument, Data: b.Payload(i)}
				got[string(raw.Lookup("documentKey").Lookup("_id").Text())]++
			}
			done = done || b.Snapshot != nil && b.Snapshot.State == delivery.SnapshotDone
		}
		if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
			t.Fatal(err)
		}
		if done {
			return got
		}
	}
}

// gates has pages that begin at some documents wait until their channels are closed.
func (s *shelf) gates(at ...int64) map[int64]chan struct{} {
	gates := make(map[int64]chan struct{})
	for _, id := range at {
		gates[id] = make(chan struct{})
	}
	s.read = func(q snapshot.Query) {
		from := int64(0)
		if !q.From.IsZero() {
			from = s.number(q.From)
		}
		if gate := gates[from]; gate != nil {
			<-gate
		}
	}
	return gates
}

// begins returns where pages began, except for those that began at the first document.
func (s *shelf) begins() (all []int64) {
	for _, q := range s.asked() {
		if !q.From.IsZero() {
			all = append(all, s.number(q.From))
		}
	}
	return all
}

// The reader that has waited longest lets one at an earlier place go first, but only once: nothing
// comes to its place if its document is gone.
func TestReadersLetOneEarlierReaderGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10}
		gates := docs.gates(50, 70, 3)
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		open := func(from int64) *delivery.Session {
			subscriptions := collection(t, "orders")
			s := b.open(delivery.SessionConfig{
				Identity: "many", Start: delivery.Place{At: b.log.End()}, Snapshots: continues(subscriptions[0], from),
			}, subscriptions)
			synctest.Wait()
			return s
		}
		one, another := open(50), open(70)
		waiting := map[*delivery.Session]int64{open(100): 100} // there is no document from there on
		for _, from := range []int64{5, 3, 7} {
			waiting[open(from)] = from
		}
		for at, s := range map[int64]*delivery.Session{50: one, 70: another} {
			s.Close(nil)
			close(gates[at])
			synctest.Wait()
		}
		if all := docs.begins(); len(all) < 4 || all[2] != 3 || all[3] != 100 {
			t.Errorf("pages begin at %d, want the third at 3, the earliest, and the fourth at 100, which has waited longest", all)
		}
		close(gates[3])
		for s, from := range waiting {
			if got := documents(t, s); int64(len(got)) != 100-from {
				t.Errorf("the reader from %d got %d documents", from, len(got))
			}
		}
	})
}

// A reader of which it is unknown whether others become complete before it does not join them: no
// page ends for it, and it keeps its turn. That is so where _ids are strings, whose order depends
// on the collation.
func TestReadersOfUnknownOrderKeepTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10, texts: true}
		gates := docs.gates(50, 60, 70)
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		open := func(from, until int64) *delivery.Session {
			subscriptions := collection(t, "orders")
			s := b.open(delivery.SessionConfig{
				Identity: "many", Start: delivery.Place{At: b.log.End()},
				Snapshots: remains(subscriptions[0], snapshot.Left{From: docs.value(from), Until: docs.value(until)}),
			}, subscriptions)
			synctest.Wait()
			return s
		}
		one, another := open(50, 30), open(70, 30)
		waiting := map[*delivery.Session]int{open(57, 10): 43 + 10}
		waiting[open(55, 20)] = 45 + 20
		waiting[open(57, 5)] = 43 + 5
		close(gates[50])
		synctest.Wait()
		if all := docs.begins(); !slices.Equal(all, []int64{50, 70, 60}) {
			t.Errorf("pages begin at %d: one has ended for nothing", all)
		}
		one.Close(nil)
		close(gates[60])
		synctest.Wait()
		if all := docs.begins(); len(all) < 4 || all[3] != 57 {
			t.Errorf("pages begin at %d, want the fourth at 57, which has waited longest", all)
		}
		another.Close(nil)
		close(gates[70])
		for s, want := range waiting {
			got := texts(t, s)
			if n := slices.Max(slices.Collect(maps.Values(got))); len(got) != want || n != 1 {
				t.Errorf("a reader of %d documents got %d, up to %d times", want, len(got), n)
			}
		}
	})
}

// A touchedPage is a shelf of which one page, at document 50, was read after its time.
type touchedPage struct {
	*shelf

	source *oplogtest.Log
}

func (s touchedPage) Read(ctx context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	p, err = s.shelf.Read(ctx, q)
	if !q.From.IsZero() && idOf(q.From) == 50 {
		_, p.To = s.source.Reach()
	}
	return p, err
}

// When all readers of a scan have left that owes them documents of a page, and another one takes
// the scan over, those that wait are offered a scan, too: their identity has one less.
func TestWaitingReadersAreOfferedWhatOthersTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10}
		gates := docs.gates(0, 50, 70)
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{Snapshots: touchedPage{docs, source}})
		defer b.end()
		open := func(identity string, snapshots func(delivery.Subscription) []snapshot.Progress) *delivery.Session {
			subscriptions := collection(t, "orders")
			s := b.open(delivery.SessionConfig{Identity: identity, Start: delivery.Place{At: b.log.End()}, Snapshots: snapshots(subscriptions[0])}, subscriptions)
			synctest.Wait()
			return s
		}
		at := func(from int64) func(delivery.Subscription) []snapshot.Progress {
			return func(sub delivery.Subscription) []snapshot.Progress { return continues(sub, from) }
		}
		leaves := open("many", at(50))
		open("many", at(70))
		waits := open("many", at(95))
		fresh := open("other", func(delivery.Subscription) []snapshot.Progress { return nil })
		leaves.Close(nil)
		source.Append(changetest.Event{Op: "replace", ID: 55, Value: 1})
		close(gates[50])
		synctest.Wait()
		if !slices.ContainsFunc(docs.asked(), func(q snapshot.Query) bool { return q.From.Equal(idValue(95)) }) {
			t.Errorf("nothing is read for the reader that waits: %s", b.hub.Scans())
		}
		close(gates[0])
		close(gates[70])
		got := documents(t, waits)
		for id := int64(95); id < 100; id++ {
			if _, there := got[id]; !there {
				t.Errorf("it did not get document %d", id)
			}
		}
		wantAll(t, documents(t, fresh), 100)
	})
}

// Late readers of one identity wait for each other; others wait for them no longer than for
// anybody.
func TestOthersDoNotWaitForLateReaders(t *testing.T) {
	for name, c := range map[string]struct {
		identity string
		from     int64
	}{"another late one": {"other", 70}, "a new one": {"slow", 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10, takes: time.Millisecond}
				b := onShelf(t, docs, delivery.Config{})
				defer b.end()
				slow := collection(t, "orders")
				b.open(delivery.SessionConfig{Identity: "slow", Start: delivery.Place{At: b.log.End()}, Snapshots: continues(slow[0], 50), CreditEvents: 24}, slow)
				time.Sleep(100 * time.Millisecond) // it has had 20 documents, and acknowledges none
				cfg, subscriptions := delivery.SessionConfig{Identity: c.identity, Start: delivery.Place{At: b.log.End()}}, collection(t, "orders")
				if c.from > 0 {
					cfg.Snapshots = continues(subscriptions[0], c.from)
				}
				begun := time.Now()
				if n := len(documents(t, b.open(cfg, subscriptions))); int64(n) != 100-c.from {
					t.Errorf("%d documents", n)
				}
				if took := time.Since(begun); took > 1500*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// A filter for one document selects it wherever it is in a page.
func TestSnapshotOfOneDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 30, page: 10}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		one := match.Filter{DB: "shop", Coll: "orders", Document: string(change.AppendCanonical(nil, idValue(17)))}
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, []delivery.Subscription{{ID: "one", Program: deliverytest.Compile(t, one), Snapshot: true}})
		got := documents(t, s)
		if _, there := got[17]; !there || len(got) != 1 {
			t.Errorf("documents %v, want 17 alone", got)
		}
	})
}
