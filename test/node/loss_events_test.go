package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// collectionEvents returns the changes of no document that were told of, in order.
func (n *live) collectionEvents() (ops []string) {
	for _, e := range n.changes() {
		if e.partition == everywhere {
			ops = append(ops, e.op)
		}
	}
	return ops
}

// resyncs returns the namespaces that were told to be read again, in order.
func (n *live) resyncs() (namespaces []string) {
	for _, l := range n.losses() {
		if l.kind == "resync" {
			namespaces = append(namespaces, l.namespaces...)
		}
	}
	return namespaces
}

// Whatever becomes of a watched collection and its database is told of once, in its place, and
// nothing that follows is missing, with a stream of the cluster and with one of the database, which
// ends when that is dropped.
func TestCollectionsThatComeAndGo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope, watch string
		want         []string
		lost         []string // collections in whose place another one was put
	}{
		{"cluster", "shop.orders", []string{"drop", "rename", "rename", "rename", "drop", "dropDatabase"}, []string{"shop.orders", "shop.orders"}},
		{"cluster", "shop.*", []string{"drop", "rename", "rename", "rename", "drop", "drop", "dropDatabase"}, []string{"shop.away", "shop.orders", "shop.orders"}},
		{"database", "shop.orders", []string{"drop", "rename", "rename", "rename", "drop", "dropDatabase", "invalidate"}, []string{"shop.orders", "shop.orders"}},
		{"database", "shop.*", []string{"drop", "rename", "rename", "rename", "drop", "drop", "dropDatabase", "invalidate"}, []string{"shop.away", "shop.orders", "shop.orders"}},
	} {
		t.Run(c.scope+" "+c.watch, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: "7.0"}, "STREAMER_MONGODB_WATCH="+c.watch)
			if c.scope == "database" {
				r.fail(times(1), 13, "aggregate") // the node looks first whether it may watch the cluster
			}
			n := r.begin()
			rename := func(from, to string, drop bool) {
				r.command(bson.D{{Key: "renameCollection", Value: from}, {Key: "to", Value: to}, {Key: "dropTarget", Value: drop}})
			}
			other := func(coll string) {
				if _, err := r.coll(coll).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "in " + coll}}); err != nil {
					t.Fatal(err)
				}
			}
			r.insert("a")
			if err := r.coll("orders").Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.insert("b")
			rename("shop.orders", "shop.away", false)
			other("staging")
			rename("shop.staging", "shop.orders", false)
			r.insert("c")
			other("temporary")
			rename("shop.temporary", "shop.orders", true)
			r.insert("d")
			if err := r.client.Database("shop").Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.insert("e")
			n.sees("a", "b", "c", "d", "e")
			n.goesOn()
			n.once("a", "b", "c", "d", "e")
			n.until("it is told of everything", func() bool { return len(n.collectionEvents()) >= len(c.want) })
			if got := n.collectionEvents(); !slices.Equal(got, c.want) {
				t.Errorf("told of %v, want %v", got, c.want)
			}
			if got := n.resyncs(); !slices.Equal(got, c.lost) {
				t.Errorf("told to read again %v, want %v", got, c.lost)
			}
			n.inOrder(t)
			if seen := slices.Contains(n.ids(), "in staging"); seen != (c.watch == "shop.*") {
				t.Errorf("a document of another collection: told of %v", seen)
			}
			if len(n.gaps()) != 0 {
				t.Errorf("%d gaps", len(n.gaps()))
			}
			n.stopped()
			if c.scope == "database" {
				r.fail(times(1), 13, "aggregate")
			}
			next := r.begin()
			next.goesOn()
			if again := len(next.ids()); again != 1 || len(next.losses()) != 0 {
				t.Errorf("after a restart %v, %d losses", next.ids(), len(next.losses()))
			}
		})
	}
}

// A transaction of 24 MB comes whole, and the checkpoints reach its end.
func TestTransactionOf24MB(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: release, OplogBytes: 256 << 20})
			n := r.begin()
			session, err := r.client.StartSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.EndSession(t.Context())
			text := make([]byte, 1<<20)
			_, _ = rand.Read(text)
			_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				for i := range 24 {
					if _, err := r.coll("orders").InsertOne(ctx, bson.D{{Key: "_id", Value: i}, {Key: "a", Value: text}}); err != nil {
						return nil, err
					}
				}
				return nil, nil //nolint:nilnil // nothing to return
			})
			if err != nil {
				t.Fatal(err)
			}
			committed := r.now()
			n.sees(idsUpTo(24)...)
			n.once(idsUpTo(24)...)
			for _, e := range n.changes() {
				if !bytes.Contains(e.event, text) {
					t.Errorf("%s came with %d bytes", e.id, len(e.event))
				}
			}
			n.sees(r.series(100, 100+16*partitions)...) // it goes on, in all partitions: idle ones are seldom saved
			n.saved(committed)
		})
	}
}

// An event above 16 MiB comes whole where the server splits it, with less where it does not, and
// either way what stands around it comes.
func TestEventAbove16MB(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release   string
		described bool // the event comes with its updateDescription too
	}{{"4.4", false}, {"7.0", true}} {
		t.Run(c.release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: c.release, OplogBytes: 256 << 20}, "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup")
			n := r.begin()
			text := make([]byte, 9<<20)
			_, _ = rand.Read(text)
			r.insert("before", "large")
			if _, err := r.coll("orders").UpdateByID(t.Context(), "large", bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: text}}}}); err != nil {
				t.Fatal(err)
			}
			r.insert("after")
			at := r.now()
			n.sees("before", "large", "after")
			n.until("the update arrives", func() bool { return n.count("update") > 0 })
			n.goesOn()
			n.once("before", "after")
			for _, e := range n.changes() {
				if e.op != "update" {
					continue
				}
				if full := e.event.Lookup("fullDocument", "a").Value; !bytes.Contains(full, text) {
					t.Errorf("its document has %d bytes", len(full))
				}
				if described := !e.event.Lookup("updateDescription").IsZero(); described != c.described {
					t.Errorf("its description is there: %v", described)
				}
			}
			if n.count("update") != 1 {
				t.Errorf("the event came %d times", n.count("update"))
			}
			if len(n.gaps()) != 0 || len(n.losses()) != 0 {
				t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
			}
			n.sees(r.series(100, 100+16*partitions)...) // idle partitions are seldom saved
			n.saved(at)
		})
	}
}
