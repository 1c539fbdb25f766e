package clustertest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
)

// A RegistryHarness is an empty store for claims and checkpoints.
type RegistryHarness struct {
	// Join returns the registry for a further process.
	Join func() cluster.Registry
	// Store keeps the checkpoints of the same store.
	Store checkpointtest.Store
	// Take takes a partition from its owner.
	Take func(p change.Partition)
}

// TestRegistry runs the suite. Open returns a new, empty store for every case.
func TestRegistry(t *testing.T, open func(t *testing.T) RegistryHarness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h registryHarness)
	}{
		{"a claim is what the store believes", testClaim},
		{"a second process is refused, and takes over when told to", testTakeOver},
		{"one partition is taken out of the claim", testTaken},
		{"partitions claimed again have new epochs", testReclaim},
		{"what was not taken gets a new epoch too", testReclaimUntaken},
		{"a partition is taken again and again", testTakenAgain},
		{"all partitions are taken and claimed again", testTakenAll},
		{"what is taken while nobody owns anything is in nobody's way", testTakenBefore},
		{"who takes over stands above what was claimed again", testTakeOverAfterReclaim},
		{"without a claim nothing is claimed again", testReclaimLost},
		{"an adopted store ends the claim", testAdopted},
		{"renewing and claiming again at once loses nothing", testRace},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := registryHarness{open(t), t}
			if _, err := h.Store.Create(t.Context(), checkpointtest.Origin("c1")); err != nil {
				t.Fatal(err)
			}
			c.run(h)
		})
	}
}

type registryHarness struct {
	RegistryHarness
	*testing.T
}

const ttl = time.Minute

func (h registryHarness) claim(r cluster.Registry, process string, takeOver bool) []change.Term {
	h.Helper()
	epochs, err := r.Claim(h.Context(), cluster.Identity{Node: "node-" + process, Process: process}, checkpointtest.Partitions, ttl, takeOver)
	if err != nil {
		h.Fatalf("claim: %v", err)
	}
	if len(epochs) != checkpointtest.Partitions {
		h.Fatalf("%d epochs", len(epochs))
	}
	all := make([]change.Partition, len(epochs))
	for p := range all {
		all[p] = change.Partition(p)
	}
	return h.terms(all, epochs)
}

// terms claims the checkpoints of partitions, as a node does with its terms.
func (h registryHarness) terms(partitions []change.Partition, epochs []change.Epoch) []change.Term {
	h.Helper()
	terms := make([]change.Term, len(partitions))
	for i, p := range partitions {
		terms[i] = change.Term{Partition: p, Epoch: epochs[i], Context: h.Context()}
	}
	if _, err := h.Store.ClaimTerms(h.Context(), checkpointtest.Subscriber, terms); err != nil {
		h.Fatalf("claim checkpoints: %v", err)
	}
	return terms
}

func (h registryHarness) reclaim(r cluster.Registry, partitions ...change.Partition) []change.Term {
	h.Helper()
	epochs, err := r.Reclaim(h.Context(), partitions)
	if err != nil || len(epochs) != len(partitions) {
		h.Fatalf("reclaim: %v, %v", epochs, err)
	}
	return h.terms(partitions, epochs)
}

func (h registryHarness) save(term change.Term, event int) error {
	return h.Store.Save(h.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(event))})[0]
}

func (h registryHarness) mustSave(term change.Term, event int) {
	h.Helper()
	if err := h.save(term, event); err != nil {
		h.Fatalf("save partition %d: %v", term.Partition, err)
	}
}

func (h registryHarness) wantFenced(term change.Term, event int) {
	h.Helper()
	if err := h.save(term, event); !errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("save of partition %d with epoch %s gave %v", term.Partition, term.Epoch, err)
	}
}

// wantTaken checks the result of a renewal.
func (h registryHarness) wantTaken(r cluster.Registry, partitions ...change.Partition) {
	h.Helper()
	called := time.Now()
	granted, taken, err := r.Renew(h.Context())
	took := time.Since(called)
	slices.Sort(taken)
	// A repeated request counts from its last sending.
	isLease := ttl <= granted && granted <= ttl+took
	if err != nil || !isLease || !slices.Equal(taken, partitions) {
		h.Errorf("renew gave %s, %v, %v; want %v taken", granted, taken, err, partitions)
	}
}

func (h registryHarness) wantLost(r cluster.Registry) {
	h.Helper()
	if _, _, err := r.Renew(h.Context()); !errors.Is(err, cluster.ErrLost) {
		h.Errorf("renew gave %v", err)
	}
	epochs, err := r.Reclaim(h.Context(), []change.Partition{1})
	if _, held := errors.AsType[*cluster.HeldError](err); !held && !errors.Is(err, cluster.ErrLost) {
		h.Errorf("reclaim gave %v, %v", epochs, err)
	}
}

func (h registryHarness) release(r cluster.Registry) {
	h.Helper()
	if err := r.Release(h.Context()); err != nil {
		h.Fatalf("release: %v", err)
	}
}

func testClaim(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	h.wantTaken(r)
	for _, p := range []int{0, 7, 255} {
		h.mustSave(terms[p], 8)
	}
	h.release(r)
	h.wantLost(r)
	again := h.claim(r, "a", false)
	for p := range again {
		if again[p].Epoch.Compare(terms[p].Epoch) <= 0 {
			h.Fatalf("epoch %s after %s", again[p].Epoch, terms[p].Epoch)
		}
	}
	h.wantFenced(terms[0], 12)
	h.mustSave(again[0], 12)
}

func testTakeOver(h registryHarness) {
	first, second := h.Join(), h.Join()
	old := h.claim(first, "a", false)
	_, err := second.Claim(h.Context(), cluster.Identity{Node: "node-b", Process: "b"}, checkpointtest.Partitions, ttl, false)
	if held, ok := errors.AsType[*cluster.HeldError](err); !ok || held.Node != "node-a" || held.Process != "a" {
		h.Fatalf("claim gave %v", err)
	}
	h.wantTaken(first)
	young := h.claim(second, "b", true)
	h.wantLost(first)
	h.wantFenced(old[3], 8)
	h.mustSave(young[3], 8)
	h.release(first)
	h.wantTaken(second)
}

func testTaken(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	h.mustSave(terms[7], 40)
	h.Take(7)
	for range 2 {
		h.wantTaken(r, 7)
	}
	h.Take(200)
	h.wantTaken(r, 7, 200)
	h.wantFenced(terms[7], 44)
	h.mustSave(terms[8], 44)
}

func testReclaim(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	h.mustSave(terms[7], 40)
	h.Take(7)
	h.Take(9)
	again := h.reclaim(r, 7, 9)
	for i, p := range []int{7, 9} {
		if again[i].Epoch.Compare(terms[p].Epoch) <= 0 {
			h.Errorf("epoch %s after %s", again[i].Epoch, terms[p].Epoch)
		}
		h.wantFenced(terms[p], 8)
		h.mustSave(again[i], 8)
	}
	h.wantTaken(r)
	h.mustSave(terms[8], 8)
	h.release(r)
	h.claim(h.Join(), "b", false)
}

func testReclaimUntaken(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	again := h.reclaim(r, 7)
	h.wantTaken(r)
	h.wantFenced(terms[7], 8)
	h.mustSave(again[0], 8)
	h.mustSave(terms[6], 8)
}

func testTakenAgain(h registryHarness) {
	r := h.Join()
	term := h.claim(r, "a", false)[7]
	for round := range 4 {
		h.mustSave(term, 8)
		for range round { // also more than once before the next renewal
			h.Take(7)
		}
		h.Take(7)
		h.wantTaken(r, 7)
		h.wantFenced(term, 12)
		old := term
		term = h.reclaim(r, 7)[0]
		h.wantTaken(r)
		h.wantFenced(old, 12)
	}
	h.mustSave(term, 12)
}

func testTakenAll(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	all := make([]change.Partition, len(terms))
	for i, term := range terms {
		all[i] = term.Partition
		h.Take(term.Partition)
	}
	h.wantTaken(r, all...)
	again := h.reclaim(r, all...)
	h.wantTaken(r)
	for _, p := range []int{0, 125, 126, 255} {
		h.wantFenced(terms[p], 8)
		h.mustSave(again[p], 8)
	}
}

func testTakenBefore(h registryHarness) {
	for range 3 {
		h.Take(7)
	}
	r := h.Join()
	terms := h.claim(r, "a", false)
	h.wantTaken(r)
	h.mustSave(terms[7], 8)
	h.release(r)
	for range 3 {
		h.Take(7)
	}
	terms = h.claim(h.Join(), "b", false)
	h.mustSave(terms[7], 8)
	h.mustSave(terms[8], 8)
}

func testTakeOverAfterReclaim(h registryHarness) {
	first, second := h.Join(), h.Join()
	h.claim(first, "a", false)
	var again change.Term
	for range 3 {
		h.Take(7)
		again = h.reclaim(first, 7)[0]
	}
	_, err := second.Claim(h.Context(), cluster.Identity{Node: "node-b", Process: "b"}, checkpointtest.Partitions, ttl, false)
	if held, ok := errors.AsType[*cluster.HeldError](err); !ok || held.Process != "a" {
		h.Fatalf("claim gave %v", err)
	}
	young := h.claim(second, "b", true)
	if young[7].Epoch.Compare(again.Epoch) <= 0 {
		h.Errorf("epoch %s after %s", young[7].Epoch, again.Epoch)
	}
	h.wantFenced(again, 8)
	h.mustSave(young[7], 8)
	h.wantLost(first)
}

func testReclaimLost(h registryHarness) {
	r := h.Join()
	h.wantLost(r)
	h.claim(r, "a", false)
	h.claim(h.Join(), "b", true)
	h.wantLost(r)
}

func testAdopted(h registryHarness) {
	r := h.Join()
	terms := h.claim(r, "a", false)
	h.mustSave(terms[0], 8)
	first := checkpointtest.Origin("c1")
	second := first
	second.Incarnation++
	if err := h.Store.Adopt(h.Context(), first, second); err != nil {
		h.Fatal(err)
	}
	h.wantLost(r)
	h.wantFenced(terms[0], 12)
	h.release(r)
	young := h.claim(h.Join(), "b", true)
	if young[0].Epoch.Incarnation != 2 {
		h.Errorf("claimed %s", young[0].Epoch)
	}
	h.mustSave(young[0], 12)
}

func testRace(h registryHarness) {
	r := h.Join()
	h.claim(r, "a", false)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := r.Renew(h.Context()); err != nil {
					h.Errorf("renew: %v", err)
					return
				}
			}
		})
	}
	for range 20 {
		h.Take(7)
		h.mustSave(h.reclaim(r, 7)[0], 8)
	}
	close(stop)
	wg.Wait()
	h.wantTaken(r)
}
