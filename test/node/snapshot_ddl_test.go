package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

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

// Whatever becomes of a collection while it is read, a subscriber that applies what it is sent has
// what is there in the end, without older states after newer ones, and its snapshot ends.
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
					pages := devmongotest.NewPages("orders", 2)
					w := newRig(t, devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }},
						"STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=100000")
					t.Cleanup(pages.Open)
					c := collections{w.coll("orders"), w.coll("other")}
					fill(w, c.orders, ids, 1)
					fill(w, c.other, ids[20:], 2000)
					node := w.beginWith(nil)
					r := newReplica()
					// What is renamed away ends the snapshot: what is renamed onto it then is a
					// loss, after which the subscriber reads again.
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
					pages.Open()
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

// create creates a collection, a view or a time series of shop.
func (r *rig) create(name string, options ...bson.E) {
	r.Helper()
	if err := r.client.Database("shop").RunCommand(r.Context(), append(bson.D{{Key: "create", Value: name}}, options...)).Err(); err != nil {
		r.Fatal(err)
	}
}

// collated is the option of a collection whose index on _id ignores case.
func collated() bson.E {
	return bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: "en"}, {Key: "strength", Value: 2}}}
}

// The index on _id of a collection has its collation: pages follow one another by it, also for who
// joins in the middle, and documents whose _ids differ in case only are different ones.
func TestSnapshotsFollowTheCollation(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "8.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			pages := devmongotest.NewPages("orders", 3)
			w := newRig(t, devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }},
				"STREAMER_RESCAN_PAGE_SIZE=3", "STREAMER_RESCAN_RATE=100000")
			t.Cleanup(pages.Open)
			w.create("orders", collated())
			v := 0
			insert := func(id any) {
				t.Helper()
				v++
				if _, err := w.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "v", Value: v}}); err != nil {
					t.Fatal(err)
				}
			}
			remove := func(id any) {
				t.Helper()
				if n, err := w.coll("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil || n.DeletedCount != 1 {
					t.Fatal(n, err)
				}
			}
			for i := range 26 { // by their bytes B comes before a
				insert(string(rune("aA"[i%2] + byte(i))))
				insert(i)
			}
			if _, err := w.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "A"}}); !mongo.IsDuplicateKeyError(err) {
				t.Fatal(err)
			}
			node := w.beginWith(nil)
			begin := func(subscriber string) *replica {
				r := newReplica()
				r.begin(t, client.Config{Addresses: []string{node.service.Gateway()}, Subscriber: subscriber, Start: client.StartSnapshot},
					client.Subscription{ID: "orders", DB: "shop", Coll: "orders"})
				return r
			}
			first := begin("first")
			node.until("pages have come", first.look(func() bool { return first.snapshots >= 6 }))
			second := begin("second") // joins in the middle
			node.until("another one has joined", second.look(func() bool { return second.begun == 1 }))
			for _, id := range []string{"a", "D", "m", "Z"} { // before, at and after what has been read
				remove(id)
				insert(strings.Map(func(r rune) rune { return r ^ 0x20 }, id))
			}
			pages.Open()
			for _, r := range []*replica{first, second} {
				node.until("the snapshot is complete", r.look(func() bool { return r.done == 1 }))
				r.equals(node, w.coll("orders"))
				r.mu.Lock()
				if len(r.older) > 0 || r.snapshots > 52 {
					t.Errorf("%d documents, %q", r.snapshots, r.older)
				}
				r.mu.Unlock()
			}
		})
	}
}

// A snapshot of everything reads capped collections as others, and no views and time series, which
// have no changes. Who names one is told.
func TestSnapshotsOfCappedCollectionsViewsAndTimeSeries(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "8.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			pages := devmongotest.NewPages("orders", 2)
			w := newRig(t, devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }},
				"STREAMER_RESCAN_PAGE_SIZE=4", "STREAMER_RESCAN_RATE=100000")
			t.Cleanup(pages.Open)
			capped := w.coll("orders")
			w.create("orders", bson.E{Key: "capped", Value: true}, bson.E{Key: "size", Value: 1 << 20}, bson.E{Key: "max", Value: 100})
			w.create("seen", bson.E{Key: "viewOn", Value: "orders"}, bson.E{Key: "pipeline", Value: bson.A{}})
			unread := []string{"seen"}
			if release == "8.0" {
				w.create("weather", bson.E{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}})
				unread = append(unread, "weather")
			}
			for i := range 20 {
				if _, err := capped.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 100 - i}, {Key: "v", Value: i}}); err != nil {
					t.Fatal(err)
				}
			}
			node := w.beginWith(nil)
			r := newReplica()
			for _, name := range unread {
				p := node.connect(client.Config{Subscriber: "of " + name, Start: client.StartSnapshot}, client.Subscription{ID: "s", DB: "shop", Coll: name})
				if err := <-p.ended; err == nil || !strings.Contains(err.Error(), string(fault.SessionUnwatched)) {
					t.Errorf("a subscription to %s: %v", name, err)
				}
			}
			r.begin(t, client.Config{Addresses: []string{node.service.Gateway()}, Subscriber: "s", Start: client.StartSnapshot},
				client.Subscription{ID: "everything", DB: "shop"})
			node.until("a page has come", r.look(func() bool { return r.snapshots >= 4 }))
			for _, id := range []int{81, 90, 100} { // read, being read, to be read
				if _, err := capped.UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1000 + id}}}}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := capped.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 0}, {Key: "v", Value: 2000}}); err != nil {
				t.Fatal(err)
			}
			pages.Open()
			node.until("the snapshot is complete", r.look(func() bool { return r.done == 1 }))
			r.equals(node, capped)
			r.mu.Lock()
			defer r.mu.Unlock()
			if mark := r.marks[len(r.marks)-1]; len(r.older) > 0 || mark.Estimated != 20 {
				t.Errorf("%+v, %q", mark, r.older)
			}
		})
	}
}
