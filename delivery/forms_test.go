package delivery_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// Changes of shards that have one time and place come in another order in streams with tokens of
// another version. Whoever comes back at one of them gets those that may have come after it,
// whichever version its position is of.
func TestResumeInTheOrderOfAnotherVersion(t *testing.T) {
	at := change.Timestamp{T: 1000, I: 2}
	of := func(version int, op string, id int64) changetest.Event {
		return changetest.Event{Version: version, Op: op, ID: id, Time: at}
	}
	orders := map[int][]changetest.Event{ // version 1 orders by document, version 2 by operation and document
		1: {of(1, "update", 3), of(1, "delete", 4), of(1, "insert", 5), of(1, "insert", 7)},
		2: {of(2, "delete", 4), of(2, "insert", 5), of(2, "insert", 7), of(2, "update", 3)},
	}
	for before, had := range orders {
		for after, log := range orders {
			for i := range had {
				synctest.Test(t, func(t *testing.T) {
					source := &oplogtest.Log{}
					source.Append(changetest.Event{ID: 1, Time: change.Timestamp{T: 1000, I: 1}})
					source.Append(log...)
					last := source.Append(changetest.Event{ID: 2, Time: change.Timestamp{T: 1000, I: 3}})
					b := begin(t, source, delivery.Config{})
					defer b.end()
					synctest.Wait()
					s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: had[i].Position().Ref()}}, deliverytest.Everything(t))
					name := func(e changetest.Event) string { return deliverytest.Wanted([]changetest.Event{e})[0] }
					var got []string
					for !slices.Contains(got, name(last[0])) {
						got = append(got, deliverytest.Refs(deliverytest.Receive(t, s, 1))...)
					}
					for _, missed := range had[i+1:] {
						if !slices.Contains(got, name(missed)) {
							t.Errorf("versions %d, %d: whoever is at %s %d misses %s %d", before, after, had[i].Op, had[i].ID, missed.Op, missed.ID)
						}
					}
					if slices.Contains(got, name(had[i])) {
						t.Errorf("versions %d, %d: whoever is at %s %d gets that again", before, after, had[i].Op, had[i].ID)
					}
				})
			}
		}
	}
}
