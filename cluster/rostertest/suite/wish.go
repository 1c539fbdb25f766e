package suite

import (
	"errors"
	"time"

	"github.com/mongostream/streamer/cluster/roster"
)

// wish returns a pin that is like no other.
func wish(to, by string) roster.Pin { return roster.Pin{To: to, By: by, At: time.Now().UTC()} }

func testPin(h harness) {
	s, w := h.Store(), h.Wisher()
	if got := h.view(s).Wishes; len(got.Pinned)+len(got.Drained) > 0 {
		h.Fatalf("%+v", got)
	}
	pin := wish("node-b/1 ä", "ann")
	for range 2 {
		if err := w.Pin(h.Context(), 3, pin, ttl); err != nil {
			h.Fatal(err)
		}
	}
	if got := h.view(s).Wishes.Pinned; len(got) != 1 || !got[3].Same(pin) {
		h.Errorf("%+v", got)
	}
	other := pin
	other.By = "bob"
	if err := w.Unpin(h.Context(), 3, other); err != nil {
		h.Error(err)
	}
	if got := h.view(s).Wishes.Pinned; !got[3].Same(pin) {
		h.Errorf("another pin was taken back: %+v", got)
	}
	for range 2 {
		if err := w.Unpin(h.Context(), 3, pin); err != nil {
			h.Error(err)
		}
	}
	if got := h.view(s).Wishes.Pinned; len(got) > 0 {
		h.Errorf("%+v", got)
	}
}

func testPinned(h harness) {
	first := wish("node-a", "ann")
	if err := h.Wisher().Pin(h.Context(), 3, first, ttl); err != nil {
		h.Fatal(err)
	}
	for _, to := range []string{"node-a", "node-b"} {
		if err := h.Wisher().Pin(h.Context(), 3, wish(to, "bob"), ttl); !errors.Is(err, roster.ErrPinned) {
			h.Errorf("a second pin, to %s, gave %v", to, err)
		}
	}
	if err := h.Wisher().Pin(h.Context(), 4, wish("node-b", "bob"), ttl); err != nil {
		h.Error(err)
	}
	if got := h.view(h.Store()).Wishes.Pinned; len(got) != 2 || !got[3].Same(first) || got[4].To != "node-b" {
		h.Errorf("%+v", got)
	}
	if err := h.Wisher().Pin(h.Context(), 1<<20, first, ttl); err == nil {
		h.Error("a partition was pinned that there is not")
	}
}

func testPinEnds(h harness) {
	s := h.Store()
	hints := s.Hints(h.Context())
	if err := h.Wisher().Pin(h.Context(), 3, wish("node-a", "ann"), time.Second); err != nil {
		h.Fatal(err)
	}
	h.until(s, hints, func(v roster.View) bool { return len(v.Wishes.Pinned) == 0 })
}

func testDrain(h harness) {
	const node = "node-b/1 ä"
	s, w := h.Store(), h.Wisher()
	first := roster.Drain{By: "ann", At: time.Now().UTC()}
	for _, d := range []roster.Drain{first, {By: "bob", At: first.At.Add(time.Second)}} {
		if err := w.Drain(h.Context(), node, d); err != nil {
			h.Fatal(err)
		}
	}
	if got := h.view(s).Wishes.Drained; len(got) != 1 || got[node].By != "ann" || !got[node].At.Equal(first.At) {
		h.Errorf("%+v", got)
	}
	for range 2 {
		if err := h.Wisher().Undrain(h.Context(), node); err != nil {
			h.Error(err)
		}
	}
	if got := h.view(s).Wishes.Drained; len(got) > 0 {
		h.Errorf("%+v", got)
	}
}

func testWishHints(h harness) {
	s, w := h.Store(), h.Wisher()
	hints := s.Hints(h.Context())
	pin := wish("node-a", "ann")
	for _, step := range []struct {
		do     func() error
		wanted func(roster.Wishes) bool
	}{
		{func() error { return w.Pin(h.Context(), 3, pin, ttl) }, func(w roster.Wishes) bool { return len(w.Pinned) == 1 }},
		{func() error { return w.Drain(h.Context(), "a", roster.Drain{By: "ann"}) }, func(w roster.Wishes) bool { return len(w.Drained) == 1 }},
		{func() error { return w.Unpin(h.Context(), 3, pin) }, func(w roster.Wishes) bool { return len(w.Pinned) == 0 }},
		{func() error { return w.Undrain(h.Context(), "a") }, func(w roster.Wishes) bool { return len(w.Drained) == 0 }},
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
		h.until(s, hints, func(v roster.View) bool { return step.wanted(v.Wishes) })
	}
}
