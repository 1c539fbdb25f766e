package streamer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
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
	c.times = append(c.times, q.After)
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
		docs := &collection{log: source, n: 40, page: 10}
		w.documents = docs
		var s *streamer.Shared
		n := w.start("a", withDocuments(t, &s))
		n.own(t, 1)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, docs.page)).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // it is saved in every partition that the collection is not read whole
		source.Append(deliverytest.Inserts(200, 100)...)
		receiveShared(t, s, 200) // which the target has and has not acknowledged
		_, handedOver := source.Reach()
		n.kill(errors.New("killed"))

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
		for _, b := range receiveShared(t, s, docs.n+200) {
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

		if documents != docs.n {
			t.Errorf("%d documents, want %d", documents, docs.n)
		}
		next.stop(t)
		n.stop(t)
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
