package fanout_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/match"
)

// A rename onto a watched collection is told as a loss of its documents, in every partition, right before what follows it: to sessions
// that follow the collection, whether they get the event or not, on the live path and behind it. What else is renamed is no loss.
func TestRenameOntoAWatchedCollectionIsToldToSessions(t *testing.T) {
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, fanout.Config{Namespaces: []string{"shop.orders", "shop.items"}})
			defer w.stop()
			synctest.Wait()
			start := change.At(w.source.Append(changetest.Event{ID: 1000})[0].Time)
			happen := func() {
				w.source.Append(inserts(20, 0)...)
				w.source.Append(changetest.Event{Op: "rename", Coll: "orders", To: "away", Keyless: true})
				w.source.Append(changetest.Event{Op: "rename", Coll: "staging", To: "orders", Keyless: true})
				w.source.Append(inserts(20, 20)...)
			}
			if behind {
				happen()
				w.source.Append(inserts(2000, 5000)...) // the tail's ring no longer has it
				synctest.Wait()
			}
			open := func(f match.Filter) (*fanout.Session, *gateway) {
				s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: start}, []fanout.Subscription{filter(t, "one", f)})
				if err != nil {
					t.Fatal(err)
				}
				g := newGateway(t)
				go func() { _ = g.follow(s) }()
				return s, g
			}
			sAll, gAll := open(match.Filter{})
			sIns, gIns := open(match.Filter{DB: "shop", Coll: "orders", Ops: []change.Op{change.OpInsert}})
			sOther, gOther := open(match.Filter{DB: "shop", Coll: "items"})
			synctest.Wait()
			if !behind {
				happen()
			}
			time.Sleep(time.Minute)
			for _, s := range []*fanout.Session{sAll, sIns, sOther} {
				s.Close(nil)
			}
			synctest.Wait()
			for name, g := range map[string]*gateway{"all": gAll, "inserts": gIns} {
				var told []change.Partition
				for _, b := range g.losses {
					told = append(told, b.Partition)
					if b.Loss.Kind != delivery.Resync || b.Loss.Reason != "renamed" || !slices.Equal(b.Loss.Namespaces, []string{"shop.orders"}) {
						t.Errorf("%s: %+v", name, b.Loss)
					}
				}
				if slices.Sort(told); !slices.Equal(told, []change.Partition{0, 1, 2, 3}) {
					t.Errorf("behind %t, %s: told in %v", behind, name, told)
				}
			}
			if len(gOther.losses) != 0 {
				t.Errorf("who does not follow the collection was told %d times", len(gOther.losses))
			}
		})
	}
}
