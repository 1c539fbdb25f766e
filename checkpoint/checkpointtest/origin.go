package checkpointtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// Origin returns an origin for the suite's number of partitions.
func Origin(cluster string) checkpoint.Origin {
	return checkpoint.Origin{
		Cluster:     cluster,
		Incarnation: 1,
		Partitions:  Partitions,
		Source:      "rs0/65f0c0ffee",
		Start:       change.Timestamp{T: 1_699_999_999, I: 3},
		At:          time.Date(2024, time.May, 17, 8, 30, 0, 456_000_000, time.UTC),
		By:          "node-a",
	}
}

func testOrigin(h harness) {
	if o, err := h.Store.Origin(h.Context()); !errors.Is(err, checkpoint.ErrNoOrigin) {
		h.Fatalf("before the first start the origin is %v, %v", o, err)
	}
	first := Origin("first")
	first.Backend = backend("first")
	for i, o := range []checkpoint.Origin{first, Origin("second"), first} {
		got, err := h.Store.Found(h.Context(), o)
		if err != nil {
			h.Fatalf("found %d: %v", i, err)
		}
		if diff := cmp.Diff(first, got); diff != "" {
			h.Errorf("found %d gave another origin (-want +got):\n%s", i, diff)
		}
	}
	for name, store := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		got, err := store.Origin(h.Context())
		if err != nil {
			h.Fatalf("%s store: %v", name, err)
		}
		if diff := cmp.Diff(first, got); diff != "" {
			h.Errorf("%s store has another origin (-want +got):\n%s", name, diff)
		}
	}
	other := Origin("other")
	other.Partitions++
	if o, err := h.Store.Found(h.Context(), other); err == nil {
		h.Errorf("an origin for another number of partitions was taken: %v", o)
	}
}

// backend is one of which everything is known.
func backend(of string) checkpoint.Backend {
	return checkpoint.Backend{Store: checkpoint.BackendMongo, Etcd: "cdf818194e3a8c32", Prefix: "/" + of + "/", ID: of}
}

// wantBackend checks what stands, in this store and in another one.
func (h harness) wantBackend(want checkpoint.Backend) {
	h.Helper()
	for name, store := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		got, err := store.Origin(h.Context())
		if err != nil {
			h.Fatalf("%s store: %v", name, err)
		}
		if diff := cmp.Diff(want, got.Backend); diff != "" || !got.Equal(Origin("c1")) {
			h.Errorf("%s store has the origin %+v (-want +got):\n%s", name, got, diff)
		}
	}
}

// An origin that was written by a version that knew of no backend is completed beside nodes of that version, which go on.
func testBackend(h harness) {
	if o, err := h.Store.Complete(h.Context(), backend("a")); !errors.Is(err, checkpoint.ErrNoOrigin) {
		h.Fatalf("before the first start %v, %v was completed", o, err)
	}
	if _, err := h.Store.Found(h.Context(), Origin("c1")); err != nil {
		h.Fatalf("found: %v", err)
	}
	h.wantBackend(checkpoint.Backend{})
	term := h.term(3)
	h.mustSave(MarkAt(term, Event(4)))
	steps := []struct{ add, want checkpoint.Backend }{
		{checkpoint.Backend{Store: checkpoint.BackendMongo}, checkpoint.Backend{Store: checkpoint.BackendMongo}},
		{backend("a"), backend("a")},
		{backend("b"), backend("a")},
		{checkpoint.Backend{}, backend("a")},
	}
	for i, step := range steps {
		got, err := h.Store.Complete(h.Context(), step.add)
		if err != nil || got.Backend != step.want {
			h.Fatalf("step %d gave %+v, %v", i, got, err)
		}
		h.wantBackend(step.want)
		h.mustSave(MarkAt(term, Event(8+4*i)))
	}
	again := Origin("c1")
	again.Backend = backend("c")
	if got, err := h.Reopen().Found(h.Context(), again); err != nil || got.Backend != backend("a") {
		h.Errorf("founding again gave %+v, %v", got, err)
	}
}

func testBackendRace(h harness) {
	if _, err := h.Store.Found(h.Context(), Origin("c1")); err != nil {
		h.Fatalf("found: %v", err)
	}
	var wg sync.WaitGroup
	got := make([]checkpoint.Origin, 8)
	for i := range got {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			var err error
			if got[i], err = store.Complete(h.Context(), backend(fmt.Sprint(i))); err != nil {
				h.Errorf("complete %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, o := range got {
		if o.Backend != got[0].Backend || o.Backend.ID == "" {
			h.Errorf("%d got %+v, the first one %+v", i, o.Backend, got[0].Backend)
		}
	}
	h.wantBackend(got[0].Backend)
}

func testOriginRace(h harness) {
	const founders = 8
	var wg sync.WaitGroup
	origins := make([]checkpoint.Origin, founders)
	for i := range founders {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			var err error
			if origins[i], err = store.Found(h.Context(), Origin(fmt.Sprint("founder ", i))); err != nil {
				h.Errorf("found %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	stands, err := h.Store.Origin(h.Context())
	if err != nil {
		h.Fatalf("origin: %v", err)
	}
	for i, o := range origins {
		if diff := cmp.Diff(stands, o); diff != "" {
			h.Errorf("founder %d got another origin (-want +got):\n%s", i, diff)
		}
	}
}
