package clustertest

import (
	"errors"
	"time"

	"github.com/mongostream/streamer/cluster"
)

// wish returns a pin that differs from all others.
func wish(to, by string) cluster.Pin { return cluster.Pin{To: to, By: by, At: time.Now().UTC()} }

func testPin(h storeHarness) {
	s, w := h.Store(), h.Directives()
	if got := h.view(s).Directives; len(got.Pinned)+len(got.Drained) > 0 {
		h.Fatalf("%+v", got)
	}
	pin := wish("node-b/1 ä", "ann")
	for range 2 {
		if err := w.Pin(h.Context(), 3, pin, ttl); err != nil {
			h.Fatal(err)
		}
	}
	if got := h.view(s).Directives.Pinned; len(got) != 1 || !got[3].Same(pin) {
		h.Errorf("%+v", got)
	}
	other := pin
	other.By = "bob"
	if err := w.Unpin(h.Context(), 3, other); err != nil {
		h.Error(err)
	}
	if got := h.view(s).Directives.Pinned; !got[3].Same(pin) {
		h.Errorf("another pin was taken back: %+v", got)
	}
	for range 2 {
		if err := w.Unpin(h.Context(), 3, pin); err != nil {
			h.Error(err)
		}
	}
	if got := h.view(s).Directives.Pinned; len(got) > 0 {
		h.Errorf("%+v", got)
	}
}

func testPinned(h storeHarness) {
	first := wish("node-a", "ann")
	if err := h.Directives().Pin(h.Context(), 3, first, ttl); err != nil {
		h.Fatal(err)
	}
	for _, to := range []string{"node-a", "node-b"} {
		if err := h.Directives().Pin(h.Context(), 3, wish(to, "bob"), ttl); !errors.Is(err, cluster.ErrPinned) {
			h.Errorf("a second pin, to %s, gave %v", to, err)
		}
	}
	if err := h.Directives().Pin(h.Context(), 4, wish("node-b", "bob"), ttl); err != nil {
		h.Error(err)
	}
	if got := h.view(h.Store()).Directives.Pinned; len(got) != 2 || !got[3].Same(first) || got[4].To != "node-b" {
		h.Errorf("%+v", got)
	}
	if err := h.Directives().Pin(h.Context(), 1<<20, first, ttl); err == nil {
		h.Error("a partition was pinned that there is not")
	}
}

func testPinEnds(h storeHarness) {
	s := h.Store()
	hints := s.Hints(h.Context())
	if err := h.Directives().Pin(h.Context(), 3, wish("node-a", "ann"), time.Second); err != nil {
		h.Fatal(err)
	}
	h.until(s, hints, func(v cluster.View) bool { return len(v.Directives.Pinned) == 0 })
}

func testDrain(h storeHarness) {
	const node = "node-b/1 ä"
	s, w := h.Store(), h.Directives()
	first := cluster.Drain{By: "ann", At: time.Now().UTC()}
	for _, d := range []cluster.Drain{first, {By: "bob", At: first.At.Add(time.Second)}} {
		if err := w.Drain(h.Context(), node, d); err != nil {
			h.Fatal(err)
		}
	}
	if got := h.view(s).Directives.Drained; len(got) != 1 || got[node].By != "ann" || !got[node].At.Equal(first.At) {
		h.Errorf("%+v", got)
	}
	for range 2 {
		if err := h.Directives().Undrain(h.Context(), node); err != nil {
			h.Error(err)
		}
	}
	if got := h.view(s).Directives.Drained; len(got) > 0 {
		h.Errorf("%+v", got)
	}
}

func testWishHints(h storeHarness) {
	s, w := h.Store(), h.Directives()
	hints := s.Hints(h.Context())
	pin := wish("node-a", "ann")
	for _, step := range []struct {
		do     func() error
		wanted func(cluster.Directives) bool
	}{
		{func() error { return w.Pin(h.Context(), 3, pin, ttl) }, func(w cluster.Directives) bool { return len(w.Pinned) == 1 }},
		{func() error { return w.Drain(h.Context(), "a", cluster.Drain{By: "ann"}) }, func(w cluster.Directives) bool { return len(w.Drained) == 1 }},
		{func() error { return w.Unpin(h.Context(), 3, pin) }, func(w cluster.Directives) bool { return len(w.Pinned) == 0 }},
		{func() error { return w.Undrain(h.Context(), "a") }, func(w cluster.Directives) bool { return len(w.Drained) == 0 }},
	} {
		for drained := false; !drained; {
			select {
			case <-hints:
			default:
				drained = true
			}
		}
		if err := step.do(); err != nil {
			h.Fatal(err)
		}
		h.until(s, hints, func(v cluster.View) bool { return step.wanted(v.Directives) })
	}
}
