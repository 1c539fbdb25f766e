package delivery_test

import (
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A partition that is attached at an earlier place, with a loss that a snapshot compensates for,
// has its changes since that place: the mark of the snapshot does not move the session on.
func TestPartitionAttachedWithALossHasItsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := change.Namespace{DB: "shop", Coll: "orders"}
		source, docs := ordersOf(true, 10, 5)
		b := begin(t, source, delivery.Config{Snapshots: docs, Recover: []change.Namespace{orders}})
		defer b.end()
		s := b.open(delivery.SessionConfig{Attached: true}, deliverytest.Everything(t))
		half := func(at change.Position, first change.Partition) map[change.Partition]delivery.Place {
			places := make(map[change.Partition]delivery.Place)
			for p := first; p < first+partitions/2; p++ {
				places[p] = delivery.Place{At: at}
			}
			return places
		}
		synctest.Wait()
		from := b.log.End()
		for id := range int64(40) {
			docs.write("insert", "other", id)
		}
		synctest.Wait()
		if err := s.Attach(half(b.log.End(), 0), nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !s.State().Live {
			t.Fatal("it is not on the live path")
		}
		s.Lapsed(oplog.Loss{Reason: gap.HistoryLost, From: from, To: from, Namespaces: []string{orders.String()}})
		if err := s.Attach(half(from, partitions/2), nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := 0
		for _, n := range b.hub.Events()[partitions/2:] {
			want += int(n)
		}
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, batch := range batches {
			for _, e := range batch.Events {
				if !e.Snapshot && e.Partition >= partitions/2 {
					got++
				}
			}
		}
		if got != want || want == 0 {
			t.Errorf("%d of the %d changes since the place at which it was attached", got, want)
		}
	})
}
