package streamer_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

// A filter that reads a looked-up document may decide otherwise about a change that is read again.
// What the owner before has hidden, and this one does not, comes with a document that is no older
// than what that one may have handed over, although this node has read the change before that one
// did. So a consumer that drops what it has seen ends with the newest document.
func TestHiddenChangesComeWithNewDocuments(t *testing.T) {
	for name, serves := range map[string]bool{"serves nothing": false, "serves other partitions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hideAndSucceed(t, serves) })
		})
	}
}

func hideAndSucceed(t *testing.T, serves bool) {
	t.Helper()
	var state atomic.Int64 // of the document
	source := &oplogtest.Log{LookUp: func(e changetest.Event) changetest.Event {
		e.Base = state.Load()
		return e
	}}
	source.Tick(1)
	w := newWorld(t, source)
	even, err := match.Compile(match.Filter{Source: "doc.b % 2 == 0", Carries: match.Carries{Document: true, LookedUp: true}})
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string) (n *node, s *streamer.Shared) {
		n = w.start(name, func(n *streamer.Node) {
			if s, err = n.Share(t.Context(), "sink", []delivery.Subscription{{ID: "even", Program: even}}); err != nil {
				t.Fatal(err)
			}
		})
		synctest.Wait()
		return n, s
	}
	var last change.Position
	write := func(to int64) change.Partition {
		state.Store(to)
		update := source.Append(changetest.Event{Op: "update", Value: to, Whole: true})[0]
		synctest.Wait()
		e, err := change.Parse(update.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := change.NewPartitioner(partitions).Of(&e)
		last = update.Position()
		return p
	}
	serve := func(n *node, epoch uint64, has func(change.Partition) bool) {
		terms := slices.DeleteFunc(termsOf(n.terms, epoch), func(t change.Term) bool { return !has(t.Partition) })
		if err := n.Serve(t.Context(), terms); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}

	successor, later := start("successor")
	defer successor.stop(t)
	p := write(2) // which it reads at once, as the next one
	write(4)
	if serves {
		serve(successor, 1, func(of change.Partition) bool { return of != p })
	}
	write(5)
	time.Sleep(time.Second)
	owner, former := start("owner")
	serve(owner, 1, func(of change.Partition) bool { return of == p }) // it reads them only now, and hides them
	write(6)

	seen, has, ended := make(map[string]bool), int64(0), false
	take := func(s *streamer.Shared) {
		for ended = false; !ended; {
			for _, b := range receiveShared(t, s, 1) {
				for i, e := range b.Events {
					if key := string(e.Ref.Append(nil)); !seen[key] {
						seen[key], has = true, bson.Raw(b.Payload(i)).Lookup("fullDocument", "b").Int64()
					}
					ended = e.Ref == last.Ref()
				}
			}
		}
	}
	take(former)
	if has != 6 || len(seen) != 1 {
		t.Fatalf("the owner has handed over %d changes, the last document is %d", len(seen), has)
	}
	owner.kill(errors.New("killed"))
	owner.cancel()
	<-owner.ended
	serve(successor, 2, func(of change.Partition) bool { return of == p })
	take(later)
	if has != 6 || len(seen) != 4 {
		t.Errorf("after %d changes, the last one that is new has document %d, not 6", len(seen), has)
	}
	write(7)
	write(8)
	take(later)
	if has != 8 {
		t.Errorf("the last document is %d", has)
	}
	if st := later.Session().State(); !st.Live {
		t.Error("the session is not on the live path")
	}
	if open, _, _ := source.Streams(); open != 1 {
		t.Errorf("%d streams are open", open)
	}
}

// Sinks that get partitions at once read anew from one stream.
func TestSinksShareTheStreamThatReadsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{Delay: time.Second}
		source.Tick(1)
		w := newWorld(t, source)
		w.asks = time.Millisecond
		even, err := match.Compile(match.Filter{Source: "doc.b % 2 == 0", Carries: match.Carries{Document: true, LookedUp: true}})
		if err != nil {
			t.Fatal(err)
		}
		var sinks []*streamer.Shared
		n := w.start("a", func(n *streamer.Node) {
			for _, name := range []string{"one", "two", "three"} {
				s, err := n.Share(t.Context(), name, []delivery.Subscription{{ID: "even", Program: even}})
				if err != nil {
					t.Fatal(err)
				}
				sinks = append(sinks, s)
			}
		})
		defer n.stop(t)
		synctest.Wait()
		source.Append(changetest.Event{Op: "update", Value: 2, Whole: true})
		time.Sleep(2 * time.Second)
		if err := n.Serve(t.Context(), termsOf(n.terms, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for i, s := range sinks {
			if !s.Session().State().Live {
				t.Errorf("session %d is not on the live path", i)
			}
		}
		if open, _, opened := source.Streams(); open != 1 || opened != 2 {
			t.Errorf("%d of %d streams are open", open, opened)
		}
	})
}
