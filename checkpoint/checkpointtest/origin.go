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
