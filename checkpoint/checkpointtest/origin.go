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
		got, err := h.Store.Create(h.Context(), o)
		if err != nil {
			h.Fatalf("create %d: %v", i, err)
		}
		if diff := cmp.Diff(first, got); diff != "" {
			h.Errorf("create %d gave another origin (-want +got):\n%s", i, diff)
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
	if o, err := h.Store.Create(h.Context(), other); err == nil {
		h.Errorf("an origin for another number of partitions was taken: %v", o)
	}
}

// backend returns a complete backend.
func backend(of string) checkpoint.Backend {
	return checkpoint.Backend{Store: checkpoint.BackendMongo, Etcd: "cdf818194e3a8c32", Prefix: "/" + of + "/", ID: of}
}

// wantBackend checks the stored backend, in this store and in a second one.
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

// Nodes complete an origin with an incomplete backend; meanwhile other saves continue.
func testBackend(h harness) {
	if o, err := h.Store.Complete(h.Context(), backend("a")); !errors.Is(err, checkpoint.ErrNoOrigin) {
		h.Fatalf("before the first start %v, %v was completed", o, err)
	}
	if _, err := h.Store.Create(h.Context(), Origin("c1")); err != nil {
		h.Fatalf("create: %v", err)
	}
	h.wantBackend(checkpoint.Backend{})
	term := h.term(3)
	h.mustSave(Shared(term, Event(4)))
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
		h.mustSave(Shared(term, Event(8+4*i)))
	}
	again := Origin("c1")
	again.Backend = backend("c")
	if got, err := h.Reopen().Create(h.Context(), again); err != nil || got.Backend != backend("a") {
		h.Errorf("creating again gave %+v, %v", got, err)
	}
}

func testBackendRace(h harness) {
	if _, err := h.Store.Create(h.Context(), Origin("c1")); err != nil {
		h.Fatalf("create: %v", err)
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
	const creators = 8
	var wg sync.WaitGroup
	origins := make([]checkpoint.Origin, creators)
	for i := range creators {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			var err error
			if origins[i], err = store.Create(h.Context(), Origin(fmt.Sprint("creator ", i))); err != nil {
				h.Errorf("create %d: %v", i, err)
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
			h.Errorf("creator %d got another origin (-want +got):\n%s", i, diff)
		}
	}
}

// next returns the origin that follows.
func next(o checkpoint.Origin, by string) checkpoint.Origin {
	o.Incarnation++
	o.By = by
	o.Source = "rs1/" + by
	return o
}

func testAdopt(h harness) {
	first := h.create()
	old := h.terms(0, 1)
	h.mustSave(noted(old[0], 40, checkpoint.ReasonBegin, 0))
	claim := h.claim("gw-1", 1).Claim
	if _, err := h.Store.Complete(h.Context(), backend("a")); err != nil {
		h.Fatalf("complete: %v", err)
	}
	second := next(first, "ann")
	second.Backend.Store = checkpoint.BackendEtcd
	if err := h.Store.Adopt(h.Context(), first, second); err != nil {
		h.Fatalf("adopt: %v", err)
	}
	second.Backend = second.Backend.With(backend("a"))
	for name, store := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		got, err := store.Origin(h.Context())
		if diff := cmp.Diff(second, got); err != nil || diff != "" {
			h.Errorf("%s store: %v (-want +got):\n%s", name, err, diff)
		}
		h.wantFenced(name+" store's save with an old epoch", h.saveTo(store, noted(old[0], 44, checkpoint.ReasonInterval, 1)))
		h.wantFenced(name+" store's save with an old epoch, of a partition without a checkpoint", h.saveTo(store, noted(old[1], 44, checkpoint.ReasonInterval, 1)))
		_, err = store.ClaimTerms(h.Context(), Subscriber, old)
		h.wantFenced(name+" store's claim with old epochs", err)
	}
	young := h.Begin(0, 1)
	claimed := h.claimTerms(young)
	if young[0].Epoch.Incarnation != 2 || claimed[0].Position.Compare(Event(40)) != 0 || !claimed[1].Position.IsZero() {
		h.Errorf("claimed %v and found %v", young, claimed)
	}
	for _, term := range young {
		h.mustSave(noted(term, 44, checkpoint.ReasonBegin, 2))
	}
	h.wantHistory(0, 44, 40)
	if c := h.rewind(SharedKey(0), Event(4)); c.Epoch != (change.Epoch{Incarnation: 2}) {
		h.Errorf("rewound with epoch %s", c.Epoch)
	}
	h.mustSave(Exclusive("gw-1", claim, Event(9))) // an exclusive subscriber has nothing to do with terms
}

func testAdoptMoved(h harness) {
	if err := h.Store.Adopt(h.Context(), Origin("c1"), next(Origin("c1"), "ann")); !errors.Is(err, checkpoint.ErrOriginMoved) && !errors.Is(err, checkpoint.ErrNoOrigin) {
		h.Errorf("an origin that is none was adopted: %v", err)
	}
	first := h.create()
	other := first
	other.Source = "rs1/0"
	h.wantError("adopt over another origin", checkpoint.ErrOriginMoved, h.Store.Adopt(h.Context(), other, next(other, "ann")))
	for name, wrong := range map[string]func(o *checkpoint.Origin){
		"the same incarnation": func(o *checkpoint.Origin) { o.Incarnation = first.Incarnation },
		"a lower incarnation":  func(o *checkpoint.Origin) { o.Incarnation = first.Incarnation - 1 },
		"other partitions":     func(o *checkpoint.Origin) { o.Partitions++ },
	} {
		o := next(first, "ann")
		wrong(&o)
		if err := h.Store.Adopt(h.Context(), first, o); err == nil {
			h.Errorf("%s was adopted", name)
		}
	}
	if got, err := h.Reopen().Origin(h.Context()); err != nil || !got.Equal(first) {
		h.Errorf("the origin is %v, %v", got, err)
	}
}

func testAdoptRace(h harness) {
	first := h.create()
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() { errs[i] = store.Adopt(h.Context(), first, next(first, fmt.Sprint(i))) })
	}
	wg.Wait()
	adopted := -1
	for i, err := range errs {
		switch {
		case err == nil && adopted >= 0:
			h.Errorf("%d and %d both adopted", adopted, i)
		case err == nil:
			adopted = i
		case !errors.Is(err, checkpoint.ErrOriginMoved):
			h.Errorf("adopt %d gave %v", i, err)
		}
	}
	if got, err := h.Reopen().Origin(h.Context()); err != nil || adopted < 0 || !got.Equal(next(first, fmt.Sprint(adopted))) {
		h.Errorf("the origin is %+v, %v; adopted by %d", got, err, adopted)
	}
}
