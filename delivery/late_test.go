package delivery_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
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
	left := snapshot.Left{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, From: idValue(from)}
	return []snapshot.Progress{{
		Subscription: sub.ID, Filter: delivery.FilterHash(sub.Program), Reason: snapshot.Start, Listed: true, Left: []snapshot.Left{left},
	}}
}

// Readers that are too late for a page do not read the rest for themselves: however many they are,
// the work is that of a few scans, and each document comes once.
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
		other := open("other", 25)
		synctest.Wait()
		if asked := docs.asked(); len(asked) != 3 {
			t.Errorf("%d pages are being read, want two of one identity and one of another", len(asked))
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
