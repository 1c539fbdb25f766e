package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A registryPlace is a place for registries.
type registryPlace struct{ place }

func newRegistryPlace(t *testing.T, endpoints []string) registryPlace {
	t.Helper()
	return registryPlace{newPlace(t, endpoints)}
}

func identity(process string) cluster.Identity {
	return cluster.Identity{Node: "node-" + process, Process: process}
}

func (p registryPlace) claim(r *Registry, process string, takeOver bool) ([]change.Epoch, error) {
	return r.Claim(p.Context(), identity(process), n, time.Minute, takeOver)
}

func (p registryPlace) mustClaim(r *Registry, process string, takeOver bool) []change.Epoch {
	p.Helper()
	epochs, err := p.claim(r, process, takeOver)
	if err != nil {
		p.Fatal(err)
	}
	return epochs
}

// claimFor claims everything for so short a time that a busy machine may be too slow, and then
// claims again.
func (p registryPlace) claimFor(r *Registry, process string, ttl time.Duration) {
	p.Helper()
	for err := rpctypes.ErrLeaseNotFound; errors.Is(err, rpctypes.ErrLeaseNotFound); {
		if _, err = r.Claim(p.Context(), identity(process), n, ttl, false); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			p.Fatal(err)
		}
	}
}

// owners lists the owner keys as they stand.
func (p registryPlace) owners() map[string]holder {
	p.Helper()
	resp, err := p.raw.Get(p.Context(), p.key("owner/"), clientv3.WithPrefix())
	if err != nil {
		p.Fatal(err)
	}
	owners := make(map[string]holder, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		owners[strings.TrimPrefix(string(kv.Key), p.key("owner/"))] = holderOf(kv)
	}
	return owners
}

func (p registryPlace) leases() []clientv3.LeaseID {
	p.Helper()
	resp, err := p.raw.Leases(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	ids := make([]clientv3.LeaseID, len(resp.Leases))
	for i, lease := range resp.Leases {
		ids[i] = lease.ID
	}
	return ids
}

func TestClaimOwnsEveryPartitionUntilItIsReleased(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Endpoints(t))
	p.origin(3)
	client := p.dial(nil)
	store, registry := NewStore(client, n), NewRegistry(client)
	before := time.Now()
	epochs := p.mustClaim(registry, "a1", false)
	if len(epochs) != n {
		t.Fatalf("%d epochs", len(epochs))
	}
	owners := p.owners()
	for i, e := range epochs {
		o := owners[fmt.Sprintf("%05d", i)]
		if e.Incarnation != 3 || int64(e.Revision) != o.Revision || o.Process != "a1" || o.Lease == clientv3.NoLease {
			t.Fatalf("partition %d has epoch %s and the owner %+v", i, e, o)
		}
	}
	var stored struct {
		Node, Process string
		ClaimedAt     time.Time `json:"claimed_at"`
	}
	if err := json.Unmarshal(p.get(p.key("owner/00042")), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Node != "node-a1" || stored.Process != "a1" || stored.ClaimedAt.Before(before) {
		t.Errorf("the owner key holds %+v", stored)
	}

	c := checkpointtest.Shared(change.Term{Partition: 42, Epoch: epochs[42]}, checkpointtest.Event(1))
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
		t.Errorf("save under the claim: %v", err)
	}
	if ttl, taken, err := registry.Renew(t.Context()); ttl != time.Minute || len(taken) > 0 || err != nil {
		t.Errorf("renew gave %s, %v, %v", ttl, taken, err)
	}
	for range 2 {
		if err := registry.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if owners := p.owners(); len(owners) != 0 {
		t.Errorf("%d partitions are still owned", len(owners))
	}
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save after the release: %v", err)
	}
	if _, _, err := registry.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("renew after the release: %v", err)
	}
}

func TestClaimAgainHasHigherEpochs(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	registry := NewRegistry(p.dial(nil))
	last := p.mustClaim(registry, "a", false)
	// Once by the same registry, once by one that knows nothing of the first two, in the same
	// process.
	for i, r := range []*Registry{registry, NewRegistry(p.dial(nil))} {
		epochs := p.mustClaim(r, "a", false)
		for partition := range epochs {
			if epochs[partition].Compare(last[partition]) <= 0 {
				t.Fatalf("claim %d: epoch %s after %s", i, epochs[partition], last[partition])
			}
		}
		last = epochs
	}
	if leases := p.leases(); len(leases) != 1 {
		t.Errorf("%d leases live", len(leases))
	}
}

func TestClaimOfWhatIsHeldTakesNothing(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	first, second := NewRegistry(p.dial(nil)), NewRegistry(p.dial(nil))
	p.mustClaim(first, "a", false)
	before := p.owners()
	_, err := p.claim(second, "b", false)
	held, ok := errors.AsType[*cluster.HeldError](err)
	if !ok || held.Node != "node-a" || held.Process != "a" || held.TTL < 50*time.Second || held.TTL > time.Minute {
		t.Fatalf("claim gave %v, %+v", err, held)
	}
	if after := p.owners(); len(after) != n || after["00007"] != before["00007"] {
		t.Errorf("the owners changed")
	}
	if leases := p.leases(); len(leases) != 1 {
		t.Errorf("%d leases live, one is the owner's", len(leases))
	}
	if _, _, err := first.Renew(t.Context()); err != nil {
		t.Errorf("the owner was disturbed: %v", err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mustClaim(second, "b", false)
}

func TestClaimThatMeetsAnotherOnItsWayGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	// Another one claims a partition of the last transaction, after this one has looked.
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		p.put(p.key("owner/00255"), []byte(`{"node":"node-b","process":"b"}`))
		return send(ctx)
	})
	_, err := p.claim(registry, "a", false)
	if held, ok := errors.AsType[*cluster.HeldError](err); !ok || held.Process != "b" {
		t.Errorf("claim gave %v", err)
	}
	if owners := p.owners(); len(owners) != 1 || owners["00255"].Process != "b" {
		t.Errorf("the owners are %v", owners)
	}
	if leases := p.leases(); len(leases) != 0 {
		t.Errorf("%d leases live", len(leases))
	}
}

func TestTakeOverEndsTheClaimOfTheOther(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	client := p.dial(nil)
	store := NewStore(client, n)
	first, second := NewRegistry(client), NewRegistry(p.dial(nil))
	old := p.mustClaim(first, "a", false)
	epochs := p.mustClaim(second, "b", true)
	for partition := range epochs {
		if epochs[partition].Compare(old[partition]) <= 0 {
			t.Fatalf("epoch %s after %s", epochs[partition], old[partition])
		}
	}
	if _, _, err := first.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("renew of the deposed: %v", err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("release of the deposed: %v", err)
	}
	results := store.Save(t.Context(), []checkpoint.Checkpoint{
		checkpointtest.Shared(change.Term{Partition: 1, Epoch: old[1]}, checkpointtest.Event(1)),
		checkpointtest.Shared(change.Term{Partition: 2, Epoch: epochs[2]}, checkpointtest.Event(1)),
	})
	if !errors.Is(results[0], checkpoint.ErrFenced) || results[1] != nil {
		t.Errorf("the deposed and the owner saved: %v", results)
	}
	if _, _, err := second.Renew(t.Context()); err != nil {
		t.Errorf("renew of the owner: %v", err)
	}
}

func TestTakeOverOfKeysThatNobodyRenews(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	p.put(p.key("owner/00003"), []byte("not an owner"))
	registry := NewRegistry(p.dial(nil))
	if _, err := p.claim(registry, "a", false); err == nil || fault.Of(err) != "" {
		t.Errorf("claim gave %v", err)
	} else if _, ok := errors.AsType[*cluster.HeldError](err); !ok {
		t.Errorf("claim gave %v", err)
	}
	p.mustClaim(registry, "a", true)
}

// lost is what a request whose answer got lost with the connection ends with.
func TestRegistryClaimWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			t.Error(err)
		}
		return lost
	})
	epochs := p.mustClaim(registry, "a", false)
	owners := p.owners()
	for i, e := range epochs {
		if o := owners[fmt.Sprintf("%05d", i)]; int64(e.Revision) != o.Revision || o.Process != "a" {
			t.Fatalf("partition %d has epoch %s and the owner %+v", i, e, o)
		}
	}
}

func TestClaimWhoseRequestArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	var late func(context.Context) error
	l.Next(func(_ context.Context, send func(context.Context) error) error {
		late = send
		return lost
	})
	p.mustClaim(registry, "a", false)
	before := p.owners()
	if err := late(t.Context()); err != nil {
		t.Error(err)
	}
	if after := p.owners(); len(after) != n || after["00000"] != before["00000"] {
		t.Errorf("the owner of partition 0 changed from %+v to %+v", before["00000"], after["00000"])
	}

	// One that arrives after the claim was given up meets a lease that is gone.
	l.Next(func(_ context.Context, send func(context.Context) error) error {
		late = send
		return status.Error(codes.PermissionDenied, "no")
	})
	if _, err := p.claim(registry, "a", false); err == nil {
		t.Error("claimed")
	}
	if err := late(t.Context()); err == nil {
		t.Error("the late request was taken")
	}
	if owners := p.owners(); len(owners) != 0 {
		t.Errorf("%d partitions are owned", len(owners))
	}
}

func TestClaimEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	ctx, cancel := context.WithCancel(t.Context())
	l.Next(func(_ context.Context, send func(context.Context) error) error {
		if err := send(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		return lost
	})
	if _, err := registry.Claim(ctx, identity("a"), n, time.Minute, false); !errors.Is(err, context.Canceled) {
		t.Errorf("claim gave %v", err)
	}
	if owners := p.owners(); len(owners) != 0 {
		t.Errorf("%d partitions are owned", len(owners))
	}
}

func TestOfManyClaimsOneWins(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		registry := NewRegistry(p.dial(nil))
		wg.Go(func() { _, errs[i] = p.claim(registry, fmt.Sprint(i), false) })
	}
	wg.Wait()
	winners := 0
	for i, err := range errs {
		if err == nil {
			winners++
		} else if _, ok := errors.AsType[*cluster.HeldError](err); !ok {
			t.Errorf("claim %d gave %v", i, err)
		}
	}
	owners := p.owners()
	// Whoever has partition 0 has met nobody, and the others have nothing yet.
	if winners != 1 || len(owners) != n || len(p.leases()) != 1 {
		t.Errorf("%d claims won, %d partitions are owned under %d leases", winners, len(owners), len(p.leases()))
	}
	processes := make(map[string]bool)
	for _, o := range owners {
		processes[o.Process] = true
	}
	if len(processes) > 1 {
		t.Errorf("the owners are %v", processes)
	}
}

func TestClaimNeedsTheOriginOfItsPartitions(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Endpoints(t))
	registry := NewRegistry(p.dial(nil))
	if _, err := p.claim(registry, "a", false); !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("without an origin: %v", err)
	}
	p.origin(1)
	if _, err := registry.Claim(t.Context(), identity("a"), 64, time.Minute, false); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("of another number of partitions: %v", err)
	}
}

func TestRenewTellsWhatEtcdGrants(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	registry := NewRegistry(p.dial(nil))
	for ttl, want := range map[time.Duration]time.Duration{
		time.Nanosecond:         time.Second, // the least of the development etcd
		2500 * time.Millisecond: 3 * time.Second,
	} {
		for err := cluster.ErrLost; errors.Is(err, cluster.ErrLost); { // a busy machine may be too slow to renew in time
			p.claimFor(registry, "a", ttl)
			var got time.Duration
			if got, _, err = registry.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) && (got != want || err != nil) {
				t.Errorf("asked for %s, renew gave %s, %v", ttl, got, err)
			}
		}
	}
}

func TestRenewWithoutAConnectionKnowsNothing(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	p.mustClaim(registry, "a", false)
	heal := l.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := registry.Renew(ctx); err == nil || errors.Is(err, cluster.ErrLost) {
		t.Errorf("renew without a connection: %v", err)
	}
	heal()
	if _, _, err := registry.Renew(t.Context()); err != nil {
		t.Errorf("renew after it: %v", err)
	}
}

func TestClaimRunsOutWhenNobodyRenewsIt(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	registry := NewRegistry(p.dial(nil))
	watch := p.raw.Watch(t.Context(), p.key("owner/00255"))
	p.claimFor(registry, "a", time.Second)
	for resp := range watch {
		if slices.ContainsFunc(resp.Events, func(e *clientv3.Event) bool { return e.Type == clientv3.EventTypeDelete }) {
			break
		}
	}
	if _, _, err := registry.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	p.mustClaim(NewRegistry(p.dial(nil)), "b", false)
}

func TestReclaimWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	l := p.link()
	registry := NewRegistry(p.dial(l))
	before := p.mustClaim(registry, "a", false)
	if _, err := p.raw.Delete(t.Context(), p.key("owner/00007")); err != nil {
		t.Fatal(err)
	}
	var late func(context.Context) error
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		late = send
		if err := send(ctx); err != nil {
			t.Error(err)
		}
		return lost
	})
	epochs, err := registry.Reclaim(t.Context(), []change.Partition{7, 8})
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		owners := p.owners()
		for i, name := range []string{"00007", "00008"} {
			if o := owners[name]; int64(epochs[i].Revision) != o.Revision || epochs[i].Compare(before[7+i]) <= 0 || o.Process != "a" {
				t.Errorf("partition %s has epoch %s and the owner %+v", name, epochs[i], o)
			}
		}
	}
	check()
	// Should the request arrive once more it changes nothing.
	if err := late(t.Context()); err != nil {
		t.Error(err)
	}
	check()
}

func TestReclaimOfWhatAnotherHasTaken(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	registry := NewRegistry(p.dial(nil))
	p.mustClaim(registry, "a", false)
	p.put(p.key("owner/00007"), []byte(`{"node":"node-b","process":"b"}`))
	_, err := registry.Reclaim(t.Context(), []change.Partition{7})
	if held, ok := errors.AsType[*cluster.HeldError](err); !ok || held.Process != "b" {
		t.Errorf("reclaim gave %v", err)
	}
}
