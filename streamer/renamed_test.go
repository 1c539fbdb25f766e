package streamer_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// A rename onto a watched collection is delivered, and told right before as a loss of the collection's documents, in its place in every
// lane: also to who does not want the event, and again after a crash until it is acknowledged.
func TestRenameOntoAWatchedCollectionIsToldInItsPlace(t *testing.T) {
	for name, wants := range map[string]func(*change.Event) bool{
		"who gets the event":    nil,
		"who wants no renames":  func(e *change.Event) bool { return e.Op() == change.OpInsert },
		"who wants nothing yet": func(e *change.Event) bool { return e.Op() == change.OpDelete },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				cfg := streamer.Config{Namespaces: []string{"shop.orders"}, Policy: checkpoint.Policy{Interval: time.Second}}
				p := w.begin(cfg, delivery.Config{Wants: wants})
				before := w.source.Append(inserts(20, 0)...)
				w.source.Append(changetest.Event{Op: "rename", DB: "shop", Coll: "orders", To: "away", Keyless: true})
				rename := w.source.Append(changetest.Event{Op: "rename", DB: "shop", Coll: "staging", To: "orders", Keyless: true})[0].Position()
				after := w.source.Append(inserts(20, 20)...)
				for round := range 3 {
					time.Sleep(10 * time.Second)
					told := map[change.Partition]int{}
					batches := everything(t, p.session)
					for _, b := range batches {
						switch {
						case b.Notice != nil:
							told[b.Partition]++
							if b.Notice.Kind != delivery.Resync || b.Notice.Reason != "renamed" || !slices.Equal(b.Notice.Namespaces, []string{"shop.orders"}) {
								t.Errorf("round %d: %+v", round, b.Notice)
							}
						default:
							for i := range b.Events {
								behind := b.Events[i].Position().Compare(rename) >= 0
								if behind != (told[b.Partition] > 0) {
									t.Errorf("round %d: partition %d: %s of %v, %d notices before", round, b.Partition, b.Events[i].Op(), b.Events[i].Position(), told[b.Partition])
								}
							}
						}
					}
					if len(told) != partitions {
						t.Errorf("round %d: told %v", round, told)
					}
					for _, n := range told {
						if n != 1 {
							t.Errorf("round %d: told %v", round, told)
						}
					}
					for _, m := range mustList(t, w) {
						if m.Position.Compare(rename) >= 0 {
							t.Errorf("round %d: the mark of partition %d has passed the notice", round, m.Partition)
						}
					}
					if round < 2 {
						p.crash()
						p = w.begin(cfg, delivery.Config{Wants: wants})
						continue
					}
					for _, b := range batches {
						p.session.Ack(b)
					}
				}
				time.Sleep(10 * time.Second)
				for _, m := range mustList(t, w) {
					if m.Position.Compare(rename) < 0 {
						t.Errorf("the mark of partition %d is at %v", m.Partition, m.Position)
					}
				}
				if gaps, _ := w.marks.Gaps(t.Context()); len(gaps) != 0 {
					t.Errorf("%d gaps around %v, %v", len(gaps), before[0].Position(), after[0].Position())
				}
				p.crash()
			})
		})
	}
}

// everything receives what there is, in its order.
func everything(t *testing.T, s *delivery.Session) (all []*delivery.Batch) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		batches, err := s.Receive(ctx)
		cancel()
		if err != nil {
			return all
		}
		all = append(all, batches...)
	}
}
