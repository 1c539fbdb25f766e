package rewindtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// late saves a mark whose write stays underway, unanswered, until deliver is called.
func (h harness) late(m checkpoint.Mark) (deliver func()) {
	h.Helper()
	held, deliver := h.Link.Hold()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- h.Store.Save(ctx, []checkpoint.Mark{m})[0] }()
	select {
	case <-held:
	case err := <-result:
		h.Fatalf("the save was answered before it was sent: %v", err)
	}
	cancel()
	if err := <-result; err == nil {
		h.Fatalf("the save was answered while its write was held up")
	}
	return deliver
}

// next returns the origin that follows.
func next(o checkpoint.Origin, by string) checkpoint.Origin {
	o.Incarnation++
	o.By = by
	o.Source = "rs1/" + by
	return o
}

func testAdopt(h harness) {
	h.found()
	old, _ := h.terms(0, 1)
	h.mustSave(markAt(old[0], 40, checkpoint.ReasonBegin, 0))
	first, err := h.Store.Complete(h.Context(), checkpoint.Backend{Store: checkpoint.BackendEtcd, Etcd: "a", Prefix: "/p/", ID: "1"})
	if err != nil {
		h.Fatal(err)
	}
	second := next(first, "ann")
	second.Backend = checkpoint.Backend{Etcd: "b", ID: "2"} // the rest stays
	if err := h.Store.Adopt(h.Context(), first, second); err != nil {
		h.Fatalf("adopt: %v", err)
	}
	second.Backend.Store, second.Backend.Prefix = checkpoint.BackendEtcd, "/p/"
	for name, store := range map[string]checkpointtest.Store{"the same": h.Store, "another": h.Reopen()} {
		got, err := store.Origin(h.Context())
		if diff := cmp.Diff(second, got); err != nil || diff != "" {
			h.Errorf("%s store: %v (-want +got):\n%s", name, err, diff)
		}
		h.wantFenced(name+" store's save with an old epoch", store.Save(h.Context(), []checkpoint.Mark{markAt(old[0], 44, checkpoint.ReasonInterval, 1)})[0])
		h.wantFenced(name+" store's save with an old epoch, of a partition without a mark", store.Save(h.Context(), []checkpoint.Mark{markAt(old[1], 44, checkpoint.ReasonInterval, 1)})[0])
		if _, err := store.Claim(h.Context(), old); !errors.Is(err, checkpoint.ErrFenced) {
			h.Errorf("%s store let the old epochs claim: %v", name, err)
		}
	}
	young, marks := h.terms(0, 1)
	if young[0].Epoch.Incarnation != 2 || marks[0].Position.Compare(checkpointtest.Event(40)) != 0 || !marks[1].Position.IsZero() {
		h.Errorf("claimed %v and found %v", young, marks)
	}
	for _, term := range young {
		h.mustSave(markAt(term, 44, checkpoint.ReasonBegin, 2))
	}
	h.wantHistory(0, 44, 40)
	if m := h.rewind(0, checkpointtest.Event(4)); m.Epoch != (change.Epoch{Incarnation: 2}) {
		h.Errorf("rewound with epoch %s", m.Epoch)
	}
}

func testAdoptMoved(h harness) {
	if err := h.Store.Adopt(h.Context(), checkpointtest.Origin("c1"), next(checkpointtest.Origin("c1"), "ann")); !errors.Is(err, checkpoint.ErrOriginMoved) && !errors.Is(err, checkpoint.ErrNoOrigin) {
		h.Errorf("an origin that is none was adopted: %v", err)
	}
	first := h.found()
	other := first
	other.Source = "rs1/0"
	if err := h.Store.Adopt(h.Context(), other, next(other, "ann")); !errors.Is(err, checkpoint.ErrOriginMoved) {
		h.Errorf("adopt over another origin gave %v", err)
	}
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
	first := h.found()
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
