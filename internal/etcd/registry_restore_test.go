package etcd

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A life is an etcd that runs in a folder until end is called.
type life struct {
	registryPlace

	end func()
}

func live(t *testing.T, dir string) life {
	t.Helper()
	server, err := devetcd.Listen(devetcd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	raw := etcdtest.Client(t, server.Endpoints())
	l := life{registryPlace: registryPlace{place{t, Config{Endpoints: server.Endpoints(), Prefix: "/streamer", Cluster: "c1", DialTimeout: time.Minute}, raw}}}
	l.end = func() {
		_ = raw.Close()
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("etcd: %v", err)
		}
	}
	return l
}

// found writes the origin of a first start.
func (l life) found() {
	l.Helper()
	if _, err := NewStore(l.dial(nil), n).Create(l.Context(), checkpointtest.Origin("c1")); err != nil {
		l.Fatal(err)
	}
}

// process claims everything as a new process and returns its terms.
func (l life) process(name string) (*Store, *Registry, []change.Term) {
	l.Helper()
	client := l.dial(nil)
	registry, store := NewRegistry(client), NewStore(client, n)
	epochs, err := registry.Claim(l.Context(), identity(name), n, time.Minute, true)
	if err != nil {
		l.Fatal(err)
	}
	terms := make([]change.Term, n)
	for p, epoch := range epochs {
		terms[p] = change.Term{Partition: change.Partition(p), Epoch: epoch, Context: l.Context()}
	}
	if _, err := store.ClaimTerms(l.Context(), checkpointtest.Subscriber, terms); err != nil {
		l.Fatal(err)
	}
	return store, registry, terms
}

func (l life) save(store *Store, term change.Term, event int) error {
	return store.Save(l.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(event))})[0]
}

// etcd is restored from a copy of its folder: its revisions go back, and the epochs that were given
// after the copy was made are given again. Only the incarnation tells them apart.
func TestRestoredEtcdIsAdopted(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), t.TempDir()
	first := live(t, dir)
	first.found()
	store, _, terms := first.process("a")
	if err := first.save(store, terms[0], 40); err != nil {
		t.Fatal(err)
	}
	if err := store.AddGap(t.Context(), checkpoint.Gap{
		From: checkpointtest.Event(4), To: checkpointtest.Event(8), Reason: "history_lost", Found: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	first.end()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	second := live(t, dir)
	store, _, old := second.process("b")
	if err := second.save(store, old[0], 80); err != nil {
		t.Fatal(err)
	}
	second.end()

	restored := live(t, backup)
	defer restored.end()
	// A new claim makes keys of the same revision as the process from before the restore has.
	for restored.revision() < int64(old[0].Epoch.Revision)-1 {
		restored.put("/elsewhere", nil)
	}
	restored.put(restored.key("owner/00000"), []byte(`{"node":"c","process":"c"}`))
	survivor := NewStore(restored.dial(nil), n)
	if err := restored.save(survivor, old[0], 60); err != nil {
		t.Fatalf("the epochs are not the same, so this test shows nothing: %v", err)
	}

	operator := NewStore(restored.dial(nil), n)
	stands, err := operator.Origin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := stands
	next.Incarnation++
	if err := operator.Adopt(t.Context(), stands, next); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"the survivor": survivor, "a process that comes back": NewStore(restored.dial(nil), n)} {
		if err := restored.save(s, old[0], 100); !errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("%s saved with an epoch from before the restore: %v", name, err)
		}
	}
	store, registry, young := restored.process("d")
	if young[0].Epoch.Incarnation != 2 {
		t.Errorf("claimed %s", young[0].Epoch)
	}
	if err := restored.save(store, young[0], 64); err != nil {
		t.Error(err)
	}
	if _, taken, err := registry.Renew(t.Context()); err != nil || len(taken) > 0 {
		t.Errorf("renew: %v, %v", taken, err)
	}
	if gaps, err := store.Gaps(t.Context()); err != nil || len(gaps) != 1 {
		t.Errorf("the gap log is %v, %v", gaps, err)
	}
	if history, err := store.History(t.Context(), checkpointtest.SharedKey(0)); err != nil || len(history) == 0 || history[len(history)-1].Position.Compare(checkpointtest.Event(40)) != 0 {
		t.Errorf("the history is %v, %v", history, err)
	}
}

func (l life) revision() int64 {
	l.Helper()
	resp, err := l.raw.Get(l.Context(), "/elsewhere")
	if err != nil {
		l.Fatal(err)
	}
	return resp.Header.Revision
}

// The owner keys of a backup come back with their leases: the process that held them is refused its
// renewals, and ends.
func TestClaimFromBeforeARestoreIsLostOnceTheStoreIsAdopted(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), t.TempDir()
	first := live(t, dir)
	first.found()
	_, registry, _ := first.process("a")
	if _, _, err := registry.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim := registry.claim()
	first.end()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	restored := live(t, backup)
	defer restored.end()
	client := restored.dial(nil)
	survivor := NewRegistry(client)
	claim.Registry, claim.renewer = survivor, newLeaseRenewer(client, claim.lease)
	survivor.setClaim(claim)
	if _, _, err := survivor.Renew(t.Context()); err != nil {
		t.Fatalf("the lease did not come back: %v", err)
	}
	store := NewStore(client, n)
	next := checkpointtest.Origin("c1")
	next.Incarnation++
	if err := store.Adopt(t.Context(), checkpointtest.Origin("c1"), next); err != nil {
		t.Fatal(err)
	}
	if _, _, err := survivor.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("renew gave %v", err)
	}
}
