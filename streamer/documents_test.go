package streamer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// A collection has documents with the _ids 0 to n-1, and reads them at a time, a page after the
// other as the test lets it.
type collection struct {
	log   *oplogtest.Log
	n     int
	page  int
	pages chan struct{} // takes a signal for each page after the first; nil reads all at once

	mu    sync.Mutex
	times []change.Timestamp // of the pages
	from  []int64            // where they begin
}

func (c *collection) Collections(context.Context, string, string) ([]snapshot.Collection, change.Timestamp, error) {
	_, last := c.log.Reach()
	return []snapshot.Collection{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, Documents: int64(c.n)}}, last, nil
}

func (c *collection) Read(ctx context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	from := int64(0)
	if !q.From.IsZero() {
		from = int64(binary.LittleEndian.Uint64(q.From.Data))
	}
	if from > 0 && c.pages != nil {
		select {
		case <-c.pages:
		case <-ctx.Done():
			return p, context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times, c.from = append(c.times, q.After), append(c.from, from)
	for id := from; id < int64(c.n); id++ {
		if len(p.Documents) == c.page {
			p.Next = change.Value{Type: 0x12, Data: binary.LittleEndian.AppendUint64(nil, uint64(id))}
			break
		}
		p.Documents = append(p.Documents, changetest.Event{ID: id}.Document())
	}
	p.To = q.After
	return p, nil
}

// withDocuments prepares a node to serve a shared subscriber that begins with a collection.
func withDocuments(t *testing.T, s **streamer.Shared) func(*streamer.Node) {
	return func(n *streamer.Node) {
		t.Helper()
		sharing(t, s)(n)
		(*s).Begin(streamer.StartSnapshot, time.Time{})
	}
}

// The next owner of a partition whose documents are not all read reads them at a time that the
// owner before it had not reached: a document that is older than a change that may have been handed
// over must not follow it. It is so although the owner's log is opened after it has its terms.
func TestDocumentsFollowWhatMayHaveBeenHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		docs := &collection{log: source, n: 400, page: 10}
		w.documents = docs
		var s *streamer.Shared
		n := w.start("a", withDocuments(t, &s))
		n.own(t, 1)
		left := docs.n
		first := receiveShared(t, s, docs.page)
		for _, b := range first { // of several pages, perhaps
			left -= len(b.Events)
		}
		if left <= 0 {
			t.Fatal("nothing is left to the next owner")
		}
		if err := s.Ack(deliverytest.Last(first).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // it is saved in every partition that the collection is not read whole
		source.Append(deliverytest.Inserts(200, 100)...)
		for changes := 0; changes < 200; { // which the target has and has not acknowledged
			for _, b := range receiveShared(t, s, 1) {
				for _, e := range b.Events {
					if !e.Snapshot {
						changes++
					}
				}
			}
		}
		_, handedOver := source.Reach()
		n.kill(errors.New("killed"))
		n.stop(t) // and nobody reads the log

		source.Delay, source.ReplyEvents = time.Second, 10 // the next owner's log reads them by and by
		docs.mu.Lock()
		docs.times = nil
		docs.mu.Unlock()
		next := w.start("b", func(n *streamer.Node) {
			withDocuments(t, &s)(n)
			if err := n.Serve(t.Context(), termsOf(t.Context(), 2)); err != nil {
				t.Fatal(err)
			}
		})
		documents := 0
		for _, b := range receiveShared(t, s, left+200) {
			for _, e := range b.Events {
				if !e.Snapshot {
					continue
				}
				documents++
				if e.Ref.Time().Compare(handedOver) < 0 {
					t.Errorf("a document is placed at %s, changes up to %s were handed over", e.Ref.Time(), handedOver)
				}
			}
		}
		docs.mu.Lock()
		for _, at := range docs.times {
			if at.Compare(handedOver) < 0 {
				t.Errorf("documents are read at %s, changes up to %s were handed over", at, handedOver)
			}
		}
		docs.mu.Unlock()

		if documents != left {
			t.Errorf("%d documents, %d were left", documents, left)
		}
		next.stop(t)
	})
}

// What is read while a partition leaves is not handed over for it any more, and left to its next
// owner.
func TestDocumentsOfAPartitionThatLeavesAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		docs := &collection{log: source, n: 40, page: 20, pages: make(chan struct{})}
		w.documents = docs
		var s, slow *streamer.Shared
		n := w.start("a", func(n *streamer.Node) {
			withDocuments(t, &s)(n)
			var err error
			if slow, err = n.Share(t.Context(), "slow", deliverytest.Everything(t)); err != nil {
				t.Fatal(err)
			}
		})
		terms := n.own(t, 1)
		source.Append(deliverytest.Inserts(partitions*8, 100)...)
		hold := receiveShared(t, slow, partitions*8) // the other subscriber's target takes its time
		first := deliverytest.Last(receiveShared(t, s, docs.page+partitions*8))
		if err := s.Ack(first.Seq); err != nil {
			t.Fatal(err)
		}
		released := make(chan struct{})
		go func() {
			defer close(released)
			n.Drain(context.Background(), terms[:partitions/2])
		}()
		synctest.Wait()
		docs.pages <- struct{}{} // the rest is read while the partitions wait for the other subscriber
		rest := deliverytest.Last(receiveShared(t, s, docs.page))
		if err := s.Ack(rest.Seq); err != nil {
			t.Fatal(err)
		}
		if err := slow.Ack(deliverytest.Last(hold).Seq); err != nil {
			t.Fatal(err)
		}
		<-released
		stored, err := w.store.Load(t.Context(), "stdout")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range stored[:partitions/2] {
			if len(delivery.Unread(c.Snapshots)) == 0 {
				t.Errorf("partition %d has left with everything read: %+v", c.Partition, c.Snapshots)
			}
		}
		n.stop(t)
	})
}

// Documents that wait for a sink which is moved back meanwhile are published all the same.
func TestMovedSinkGetsAllDocuments(t *testing.T) {
	for name, move := range map[string]func(*testing.T, *world, *streamer.Shared, change.Timestamp){
		"a rewind within its snapshot": rewindEverything,
		"a rewind before an operator's snapshot is saved": func(t *testing.T, w *world, s *streamer.Shared, to change.Timestamp) {
			documentsOf(t, s, make(map[int64]bool))
			if done, did := s.Session().Operate(delivery.BeginSnapshot, "", change.Namespace{}); done != 1 || !did {
				t.Fatal(done, did)
			}
			synctest.Wait()
			rewindEverything(t, w, s, to)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				_, begun := source.Reach()
				source.Append(deliverytest.Inserts(1, 100)...)
				w := newWorld(t, source)
				docs := &collection{log: source, n: 40, page: 20}
				w.documents = docs
				var s *streamer.Shared
				n := w.start("a", withDocuments(t, &s))
				n.own(t, 1)
				synctest.Wait()
				move(t, w, s, begun)
				n.Rewound("stdout")
				synctest.Wait()
				ids := make(map[int64]bool)
				if documentsOf(t, s, ids); len(ids) != docs.n {
					t.Errorf("%d documents of %d", len(ids), docs.n)
				}
				n.stop(t)
			})
		})
	}
}

func rewindEverything(t *testing.T, w *world, _ *streamer.Shared, to change.Timestamp) {
	t.Helper()
	for p := range change.Partition(partitions) {
		key := checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: p}
		if _, err := w.store.Rewind(t.Context(), key, change.At(to), "operator", "a test"); err != nil {
			t.Fatal(err)
		}
	}
}

// documentsOf receives and acknowledges what there is, and adds the _ids of its documents.
func documentsOf(t *testing.T, s *streamer.Shared, ids map[int64]bool) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		batches, err := s.Receive(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			s.Prune(b)
			for i, e := range b.Events {
				if e.Snapshot {
					ids[idIn(t, b.Payload(i))] = true
				}
			}
			if err := s.Ack(b.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// idIn returns the _id of the document in an event.
func idIn(t *testing.T, payload []byte) int64 {
	t.Helper()
	var e struct {
		Key struct {
			ID int64 `bson:"_id"`
		} `bson:"documentKey"`
	}
	if err := bson.Unmarshal(payload, &e); err != nil {
		t.Fatal(err)
	}
	return e.Key.ID
}

// A partition whose documents are not all read goes on at its next owner where its checkpoint is,
// whether the owner before was killed or gave it away, and also where the next owner is further.
// With another filter, nothing of what was read counts.
func TestDocumentsGoOnAtTheNextOwner(t *testing.T) {
	for name, c := range map[string]struct {
		gives  bool   // the first owner gives some partitions away, to one that has read more
		filter string // of the next owner
		from   int64  // where the next owner begins
	}{
		"killed":               {from: 10},
		"gives some away":      {gives: true, from: 10},
		"killed, other filter": {filter: "doc._id >= 0", from: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				w := newWorld(t, source)
				var s, later *streamer.Shared
				first, second := &collection{log: source, n: 40, page: 10, pages: make(chan struct{})}, &collection{log: source, n: 40, page: 10, pages: make(chan struct{})}
				w.documents = first
				n := w.start("a", withDocuments(t, &s))
				terms := n.allTerms(1)
				if c.gives {
					terms = terms[:partitions/2]
				}
				if err := n.Serve(t.Context(), terms); err != nil {
					t.Fatal(err)
				}
				ids := make(map[int64]bool)
				documentsOf(t, s, ids) // a page
				w.documents = second
				next := w.start("b", func(n *streamer.Node) {
					var err error
					subscriptions := deliverytest.Everything(t)
					if c.filter != "" {
						subscriptions[0].Program = deliverytest.Compile(t, match.Filter{Source: c.filter})
					}
					if later, err = n.Share(t.Context(), "stdout", subscriptions); err != nil {
						t.Fatal(err)
					}
					later.Begin(streamer.StartSnapshot, time.Time{})
				})
				moved := termsOf(next.terms, 2)
				if c.gives {
					if err := next.Serve(t.Context(), next.allTerms(1)[partitions/2:]); err != nil {
						t.Fatal(err)
					}
					go func() { second.pages <- struct{}{} }()
					documentsOf(t, later, ids) // two pages
					moved = moved[:partitions/4]
					n.Drain(t.Context(), terms[:partitions/4])
				} else {
					time.Sleep(5 * time.Minute) // it is saved
					n.kill(errors.New("killed"))
				}
				second.mu.Lock()
				second.from = nil // one that is being read is not noted yet
				second.mu.Unlock()
				if err := next.Serve(t.Context(), moved); err != nil {
					t.Fatal(err)
				}
				close(second.pages)
				documentsOf(t, later, ids)
				close(first.pages)
				documentsOf(t, s, ids)
				if len(ids) != first.n {
					t.Errorf("%d documents of %d", len(ids), first.n)
				}
				if got := slices.Min(second.from); got != c.from {
					t.Errorf("pages from %v, want the first one from %d", second.from, c.from)
				}
				next.stop(t)
				n.stop(t)
			})
		})
	}
}
