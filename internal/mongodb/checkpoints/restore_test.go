package checkpoints

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// A backup is what the collections of a store held.
type backup map[*mongo.Collection][]bson.Raw

func (s *Store) backUp(t *testing.T) backup {
	t.Helper()
	b := backup{}
	for _, c := range []*mongo.Collection{s.checkpoints, s.cluster, s.gaps} {
		cursor, err := c.Find(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var documents []bson.Raw
		if err := cursor.All(t.Context(), &documents); err != nil {
			t.Fatal(err)
		}
		b[c] = documents
	}
	return b
}

func (b backup) restore(t *testing.T) {
	t.Helper()
	for c, documents := range b {
		if _, err := c.DeleteMany(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		if len(documents) == 0 {
			continue
		}
		if _, err := c.InsertMany(t.Context(), documents); err != nil {
			t.Fatal(err)
		}
	}
}

// MongoDB is restored from a backup: the claims that were made after it are made again, with the
// same epochs. Only the incarnation tells them apart.
func TestRestoredMongoDBIsAdopted(t *testing.T) {
	c := mongodbtest.Dial(t, devmongotest.URI(t))
	name := mongodbtest.Database(t, c)
	const n = 8
	open := func() *Store { return NewStore(c, name, "c", n) }
	claim := func(process string) (*Store, *Registry, change.Term) {
		t.Helper()
		store := open()
		owner := NewRegistry(store)
		epochs, err := owner.Claim(t.Context(), cluster.Identity{Node: "n", Process: process}, n, time.Minute, true)
		if err != nil {
			t.Fatal(err)
		}
		terms := make([]change.Term, n)
		for p, epoch := range epochs {
			terms[p] = change.Term{Partition: change.Partition(p), Epoch: epoch, Context: context.Background()}
		}
		if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, terms); err != nil {
			t.Fatal(err)
		}
		return store, owner, terms[0]
	}
	save := func(store *Store, term change.Term, event int) error {
		c := checkpointtest.Shared(term, checkpointtest.Event(event))
		c.Partitions = n
		return store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]
	}
	origin := checkpointtest.Origin("c1")
	origin.Partitions = n
	if _, err := open().Create(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	store, _, term := claim("a")
	if err := save(store, term, 40); err != nil {
		t.Fatal(err)
	}
	b := store.backUp(t)
	survivor, survivorOwner, old := claim("b")
	if err := save(survivor, old, 80); err != nil {
		t.Fatal(err)
	}
	b.restore(t)

	store, _, same := claim("c")
	if same.Epoch != old.Epoch {
		t.Fatalf("claimed %s after %s, so this test shows nothing", same.Epoch, old.Epoch)
	}
	if err := save(open(), old, 60); err != nil {
		t.Fatalf("the epochs are not the same, so this test shows nothing: %v", err)
	}
	next := origin
	next.Incarnation++
	if err := store.Adopt(t.Context(), origin, next); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"the survivor": survivor, "a process that comes back": open()} {
		if err := save(s, old, 100); !errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("%s saved with an epoch from before the restore: %v", name, err)
		}
	}
	if _, _, err := survivorOwner.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("the survivor's renewal gave %v", err)
	}
	store, owner, young := claim("d")
	if young.Epoch != (change.Epoch{Incarnation: 2, Revision: 1}) {
		t.Errorf("claimed %s", young.Epoch)
	}
	if err := save(store, young, 64); err != nil {
		t.Error(err)
	}
	if _, taken, err := owner.Renew(t.Context()); err != nil || len(taken) > 0 {
		t.Errorf("renew: %v, %v", taken, err)
	}
	if history, err := store.History(t.Context(), checkpointtest.SharedKey(0)); err != nil || len(history) == 0 || history[len(history)-1].Position.Compare(checkpointtest.Event(40)) != 0 {
		t.Errorf("the history is %v, %v", history, err)
	}
}
