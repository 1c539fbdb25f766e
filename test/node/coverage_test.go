package node

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/notice"
)

// told reports whether the nodes have been told that one of them is given nothing because it does
// not cover the others.
func (n *live) toldOfCoverage(node string) bool {
	notices, _ := n.service.Board().Since(0)
	return slices.ContainsFunc(notices, func(told notice.Notice) bool {
		return told.Kind == notice.KindMemberRefused && told.Fields["member"] == node && told.Fields["code"] == string(fault.ClusterCoverage)
	})
}

// owned returns how many partitions a node owns.
func (n *live) owned() (owned int) {
	for p := range change.Partition(partitions) {
		if n.service.Node().Epoch(p) != (change.Epoch{}) {
			owned++
		}
	}
	return owned
}

// ofThree are the settings of a node of three, with what it reads.
func ofThree(node, watch string) []string {
	return append(several(node), "STREAMER_CLUSTER_EXPECTED_NODES=3", "STREAMER_CLUSTER_HEARTBEAT_INTERVAL=200ms", "STREAMER_MONGODB_WATCH="+watch)
}

// keepWriting writes to two collections until stop is called, which returns how many documents
// there are in each.
func (r *rig) keepWriting(colls ...string) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	written := 0
	writing.Go(func() {
		for ; ctx.Err() == nil; written++ {
			for _, coll := range colls {
				if _, err := r.coll(coll).InsertOne(context.Background(), map[string]any{"_id": fmt.Sprint(coll, "/", written), "n": 3}); err != nil {
					r.Error(err)
					return
				}
			}
		}
	})
	stop = func() int {
		cancel()
		writing.Wait()
		return written
	}
	r.Cleanup(func() { stop() })
	return stop
}

// allArrive waits until every document of the collections has arrived.
func (n *live) allArrive(l *landing, written int, colls ...string) {
	n.Helper()
	n.until("every change arrives", func() bool {
		there := l.seqs(n.T)
		for _, coll := range colls {
			for i := range written {
				if len(there[fmt.Sprint(coll, "/", i)]) == 0 {
					return false
				}
			}
		}
		return true
	})
}

// A node that reads less than the others joins for a while: it owns nothing, so that it moves no
// checkpoint of the sink past changes that it does not read.
func TestNodeThatReadsLessOwnsNothing(t *testing.T) {
	t.Parallel()
	l, out := &landing{}, &endpoint{}
	out.answers(func(_ *http.Request, lines []string) int { l.add(lines...); return http.StatusOK })
	r := sinkRig(t, toHTTP(t, out))
	a, b := r.beginWith(nil, ofThree("a", "shop.*")...), r.beginWith(nil, ofThree("b", "shop.*")...)
	a.until("two nodes own everything", func() bool { return a.owned()+b.owned() == partitions })
	stop := r.keepWriting("orders", "items")
	narrow := r.beginWith(nil, ofThree("narrow", "shop.orders")...)
	a.until("all are told", func() bool { return a.toldOfCoverage("narrow") })
	narrow.until("it says so itself", func() bool { return narrow.has("settings", fault.ClusterCoverage) })
	b.stopped() // its partitions go to the only node that reads everything
	a.until("one node owns everything", func() bool { return a.owned() == partitions })
	if owned := narrow.owned(); owned > 0 {
		t.Errorf("the node that reads less owns %d partitions", owned)
	}
	narrow.stopped()
	a.allArrive(l, stop(), "orders", "items")
}

// A node has a sink that another one lacks, as during a rolling change: the sink goes on in all
// partitions.
func TestSinkThatOneNodeLacksGoesOn(t *testing.T) {
	t.Parallel()
	l, out := &landing{}, &endpoint{}
	out.answers(func(_ *http.Request, lines []string) int { l.add(lines...); return http.StatusOK })
	r := sinkRig(t, toHTTP(t, out))
	file := r.file
	r.file = ""
	a, b := r.beginWith(nil, ofThree("a", "shop.*")...), r.beginWith(nil, ofThree("b", "shop.*")...)
	a.until("two nodes own everything", func() bool { return a.owned()+b.owned() == partitions })
	r.file = file
	c := r.beginWith(nil, ofThree("c", "shop.*")...)
	a.until("the node with the sink owns everything", func() bool { return c.owned() == partitions })
	for _, node := range []string{"a", "b"} {
		a.until("all are told", func() bool { return a.toldOfCoverage(node) })
	}
	r.writes(0, 20)
	c.landed(l, 20)
	b.stopped()
	b = r.beginWith(nil, ofThree("b", "shop.*")...)
	a.until("the nodes with the sink own everything", func() bool { return b.owned()+c.owned() == partitions && b.owned() > 0 })
	r.writes(20, 40)
	b.arrived(l, 40)
}

// A node that reads less has moved checkpoints past changes that it did not read, because no other
// was left. Whoever reads them again tells of the stretch: the sink's loss is in its
// checkpoints, the gateway hears of it, and neither hears of it twice.
func TestChangesThatANodeDidNotReadAreALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	const wide, narrow = "STREAMER_MONGODB_WATCH=shop.orders,shop.items", "STREAMER_MONGODB_WATCH=shop.orders"
	everything := client.Subscription{ID: "all", DB: "shop"}
	unread := func(told client.Notice) bool {
		l, ok := told.(client.Resync)
		return ok && l.Reason == string(gap.Unread) && slices.Equal(l.Namespaces, []string{"shop.items"})
	}
	// stay has a node and a gateway get a change each, and save that, and returns how often the
	// gateway was told of the loss. A loss comes before them.
	stay := func(watch string) (n *live, told int, leave func()) {
		n = r.begin(watch)
		p := n.connect(client.Config{Subscriber: "g"}, everything)
		p.told(t, "connected", func(heard client.Notice) bool {
			if unread(heard) {
				told++
			}
			return connected(heard)
		})
		before := r.now()
		r.insert(before.String())
		n.sees(before.String())
		p.takes(t, 1)
		n.saved(before)
		for len(p.notices) > 0 {
			if unread(<-p.notices) {
				told++
			}
		}
		return n, told, func() {
			p.stop()
			n.stopped()
		}
	}
	_, _, leave := stay(narrow)
	leave()
	n, told, leave := stay(wide) // more is read from here on, which nobody has missed
	if losses := n.losses(); len(losses) > 0 || told > 0 {
		t.Errorf("nothing was missed: %+v, %d", losses, told)
	}
	leave()
	_, _, leave = stay(narrow)
	missed := r.now()
	if _, err := r.coll("items").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	leave()
	_, _, leave = stay(narrow)
	leave()

	n, told, leave = stay(wide)
	if losses := n.losses(); len(losses) != 1 || losses[0].reason != string(gap.Unread) || !slices.Equal(losses[0].namespaces, []string{"shop.items"}) ||
		!losses[0].bounds(missed.Next(), false) || told != 1 {
		t.Errorf("the shared subscriber is told %+v, not of a loss with %s, the gateway %d times", losses, missed, told)
	}
	n.until("the checkpoints have the loss", func() bool {
		missing := 0
		for _, c := range r.stored(sharedName) {
			if len(c.Losses) != 1 || c.Losses[0].Reason != string(gap.Unread) {
				missing++
			}
		}
		return missing == 0
	})
	if gaps := r.gaps(); len(gaps) > 0 {
		t.Errorf("it is told as everybody's: %+v", gaps)
	}
	leave()
	if n, told, _ = stay(wide); len(n.losses()) > 0 || told > 0 {
		t.Errorf("told again: %+v, the gateway %d times", n.losses(), told)
	}
}
