package wiring

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/internal/devmongo"
)

// A gate has pages of shop.orders wait that have been read, so that what happens meanwhile is later than they are.
type gate struct {
	mu    sync.Mutex
	cond  *sync.Cond
	pages int // that may still pass; negative: any number
}

func newGate(pages int) *gate {
	g := &gate{pages: pages}
	g.cond = sync.NewCond(&g.mu)
	return g
}

func (g *gate) pass(command, namespace string) {
	if command != "find" || namespace != "shop.orders" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.pages == 0 {
		g.cond.Wait()
	}
	if g.pages > 0 {
		g.pages--
	}
}

// open lets all pages pass.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pages = -1
	g.cond.Broadcast()
}

// applyWhole takes an event that is not of a document. The caller holds the mutex.
func (r *replica) applyWhole(event []byte) error {
	type namespace struct{ DB, Coll string }
	var e struct {
		OperationType string
		NS, To        namespace
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	is := func(key string, ns namespace) bool {
		return strings.HasPrefix(key, ns.DB+".") && (ns.Coll == "" || strings.HasPrefix(key, ns.DB+"."+ns.Coll+" "))
	}
	gone := func(ns namespace) {
		for _, of := range []map[string]int{r.docs, r.newest} {
			maps.DeleteFunc(of, func(key string, _ int) bool { return is(key, ns) })
		}
	}
	switch e.OperationType {
	case "drop", "dropDatabase":
		gone(e.NS)
	case "rename":
		gone(e.To)
		for _, of := range []map[string]int{r.docs, r.newest} {
			for key, v := range maps.Clone(of) {
				if is(key, e.NS) {
					of[e.To.DB+"."+e.To.Coll+" "+strings.TrimPrefix(key, e.NS.DB+"."+e.NS.Coll+" ")] = v
				}
			}
		}
		gone(e.NS)
	case "invalidate", "create":
	default:
		return fmt.Errorf("event %s", event)
	}
	return nil
}

// Whatever becomes of a collection while it is read, a subscriber that applies what it is sent has what is there in the end, without older states
// after newer ones, and its snapshot ends.
func TestCollectionsThatChangeWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	type collections struct{ orders, other *mongo.Collection }
	fill := func(w *rig, coll *mongo.Collection, ids []any, v int) {
		w.Helper()
		docs := make([]any, len(ids))
		for i, id := range ids {
			docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "v", Value: v + i}}
		}
		if _, err := coll.InsertMany(w.Context(), docs); err != nil {
			w.Fatal(err)
		}
	}
	rename := func(w *rig, from, to string) {
		w.Helper()
		w.command(bson.D{{Key: "renameCollection", Value: "shop." + from}, {Key: "to", Value: "shop." + to}, {Key: "dropTarget", Value: true}})
	}
	drop := func(w *rig, c collections) {
		w.Helper()
		if err := c.orders.Drop(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
	ids := mixedIDs(40)
	for name, do := range map[string]func(w *rig, c collections){
		"dropped": drop,
		"dropped and filled again": func(w *rig, c collections) {
			drop(w, c)
			fill(w, c.orders, ids[10:30], 1000)
		},
		"renamed away":                  func(w *rig, _ collections) { rename(w, "orders", "old") },
		"renamed away and filled again": func(w *rig, c collections) { rename(w, "orders", "old"); fill(w, c.orders, ids[5:25], 1000) },
		"renamed onto":                  func(w *rig, _ collections) { rename(w, "other", "orders") },
		"renamed away and another onto": func(w *rig, _ collections) { rename(w, "orders", "old"); rename(w, "other", "orders") },
		"renamed away and back":         func(w *rig, _ collections) { rename(w, "orders", "old"); rename(w, "old", "orders") },
		"emptied": func(w *rig, c collections) {
			if _, err := c.orders.DeleteMany(w.Context(), bson.D{}); err != nil {
				w.Fatal(err)
			}
		},
		"emptied and filled again": func(w *rig, c collections) {
			if _, err := c.orders.DeleteMany(w.Context(), bson.D{}); err != nil {
				w.Fatal(err)
			}
			fill(w, c.orders, ids[15:35], 1000)
		},
		"gone with its database": func(w *rig, c collections) {
			if err := c.orders.Database().Drop(w.Context()); err != nil {
				w.Fatal(err)
			}
			fill(w, c.orders, ids[:3], 1000)
		},
	} {
		for _, release := range []string{"4.4", "8.0"} {
			for _, over := range []string{"gRPC", "events"} {
				t.Run(fmt.Sprint(name, " ", release, " ", over), func(t *testing.T) {
					t.Parallel()
					pages := newGate(2)
					w := newRig(t, devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.pass }},
						"STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=100000")
					t.Cleanup(pages.open)
					c := collections{w.coll("orders"), w.coll("other")}
					fill(w, c.orders, ids, 1)
					fill(w, c.other, ids[20:], 2000)
					node := w.beginWith(nil)
					r := newReplica()
					// What is renamed away ends the snapshot: what is renamed onto it then is a loss, after which the subscriber reads again.
					onLoss, parameter := client.LossNotify, "notify"
					if strings.HasPrefix(name, "renamed away and") {
						onLoss, parameter = client.LossSnapshot, "snapshot"
					}
					if over == "gRPC" {
						r.begin(t, client.Config{Addresses: []string{node.service.Gateway()}, Subscriber: "s", Start: client.StartSnapshot},
							client.Subscription{ID: "events", DB: "shop", Coll: "orders", OnLoss: onLoss})
					} else {
						query := url.Values{"db": {"shop"}, "coll": {"orders"}, "start": {"snapshot"}, "on_loss": {parameter}, "subscriber": {"s"}}
						r.beginEvents(t, node.service.Addr(), query.Encode())
					}
					node.until("a page has come", r.look(func() bool { return r.snapshots >= 7 }))
					do(w, c)
					pages.open()
					node.until("the snapshot is complete", r.look(func() bool { return r.done > 0 }))
					want := contents(t, c.orders)
					got := make(map[string]int)
					node.until("the replica is what the collection is", r.look(func() bool {
						clear(got)
						for key, v := range r.docs {
							if strings.HasPrefix(key, "shop.orders ") {
								got[key] = v
							}
						}
						return maps.Equal(got, want)
					}))
					r.mu.Lock()
					defer r.mu.Unlock()
					if r.err != nil || len(r.older) > 0 {
						t.Errorf("%v, %q", r.err, r.older)
					}
				})
			}
		}
	}
}
