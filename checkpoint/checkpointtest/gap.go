package checkpointtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// gapAt returns a gap after an event, found at the given seconds after the suite's start.
func gapAt(event, seconds int) checkpoint.Gap {
	return checkpoint.Gap{
		From: Event(event), To: change.At(change.Timestamp{T: 1_800_000_000, I: 1}), Reason: "history_lost",
		Fingerprint: "5f1e9a", Found: began.Add(time.Duration(seconds) * time.Second), By: "node-a",
	}
}

func (h harness) addGap(g checkpoint.Gap) {
	h.Helper()
	if err := h.Store.AddGap(h.Context(), g); err != nil {
		h.Fatalf("add gap: %v", err)
	}
}

func (h harness) gaps() []checkpoint.Gap {
	h.Helper()
	gaps, err := h.Reopen().Gaps(h.Context())
	if err != nil {
		h.Fatalf("gaps: %v", err)
	}
	return gaps
}

func (h harness) wantGaps(gaps ...checkpoint.Gap) {
	h.Helper()
	if diff := cmp.Diff(gaps, h.gaps()); diff != "" {
		h.Errorf("the gap log is otherwise (-want +got):\n%s", diff)
	}
}

func testGapFields(h harness) {
	if gaps := h.gaps(); len(gaps) != 0 {
		h.Errorf("nothing was added, and there is %v", gaps)
	}
	g := gapAt(5, 0)
	g.Namespaces = []string{"shop.orders", "stock.*"}
	h.addGap(g)
	h.wantGaps(g)
	// A caller may change its gap afterwards.
	clear(g.Namespaces)
	if got := h.gaps()[0]; got.Namespaces[0] != "shop.orders" {
		h.Errorf("the gap became %+v", got)
	}
	unknown := gapAt(5, 9)
	unknown.From, unknown.To = change.Position{}, change.Position{}
	h.addGap(unknown)
	if gaps := h.gaps(); len(gaps) != 2 || !gaps[1].From.IsZero() || !gaps[1].To.IsZero() {
		h.Errorf("the gaps are %+v", gaps)
	}
}

func testGapOrder(h harness) {
	third, first, second := gapAt(5, 20), gapAt(80, 0), gapAt(40, 10)
	for _, g := range []checkpoint.Gap{third, first, second} {
		h.addGap(g)
	}
	h.wantGaps(first, second, third)
}

func testGapAgain(h harness) {
	first := gapAt(5, 0)
	first.Namespaces = []string{"shop.orders"}
	h.addGap(first)
	again := gapAt(5, 60)
	again.By = "node-b"
	again.Namespaces = []string{"shop.items", "shop.orders"}
	again.To = change.At(change.Timestamp{T: 1_800_000_900, I: 1})
	want := first
	want.To, want.Namespaces = again.To, again.Namespaces
	for range 2 {
		h.addGap(again)
		h.wantGaps(want)
	}
	if err := h.Reopen().AddGap(h.Context(), gapAt(5, 90)); err != nil { // of everything, and shorter
		h.Fatalf("add gap: %v", err)
	}
	want.Namespaces = nil
	h.wantGaps(want)
	poison := gapAt(5, 100)
	poison.Reason = "poison"
	h.addGap(poison)
	h.addGap(gapAt(6, 101))
	if n := len(h.gaps()); n != 3 {
		h.Errorf("%d gaps, one more begins elsewhere, and one has another reason", n)
	}
}

func testGapLargeToken(h harness) {
	g := gapAt(5, 0)
	g.From.Token = append(slices.Clone(g.From.Token), make([]byte, 16<<10)...)
	g.To = change.Position{Token: []byte("strange"), Time: change.Timestamp{T: 1_800_000_000, I: 7}}
	h.addGap(g)
	h.addGap(g)
	g.From, g.To = change.At(g.From.Time), change.At(g.To.Time)
	h.wantGaps(g)
}

func testTooManyGaps(h harness) {
	const more = 3
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := worker; n < checkpoint.MaxGaps+more; n += 8 {
				if err := h.Store.AddGap(h.Context(), gapAt(n, n)); err != nil {
					h.Errorf("add gap %d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	h.addGap(gapAt(5000, 5000))
	gaps := h.gaps()
	if len(gaps) != checkpoint.MaxGaps {
		h.Fatalf("%d gaps are kept, want %d", len(gaps), checkpoint.MaxGaps)
	}
	if oldest := gaps[0].Found.Sub(began); oldest != (more+1)*time.Second {
		h.Errorf("the oldest was found after %s", oldest)
	}
	// A known gap needs no room.
	h.addGap(gapAt(5000, 6000))
	if again := h.gaps(); len(again) != checkpoint.MaxGaps || again[0].ID() != gaps[0].ID() {
		h.Errorf("%d gaps, the oldest %s", len(again), again[0].ID())
	}
}

func testGapRace(h harness) {
	var wg sync.WaitGroup
	stores := []Store{h.Store, h.Reopen()}
	for i := range 16 {
		wg.Go(func() {
			if err := stores[i%2].AddGap(h.Context(), gapAt(5+i, i)); err != nil {
				h.Errorf("add gap %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := len(h.gaps()); n != 16 {
		h.Errorf("%d gaps", n)
	}
}

func testSameGapRace(h harness) {
	var wg sync.WaitGroup
	stores := []Store{h.Store, h.Reopen()}
	const adders = 8
	for i := range adders {
		g := gapAt(5, i)
		g.To.Time.T += uint32(i)
		g.Namespaces = []string{fmt.Sprintf("db.c%d", i)}
		wg.Go(func() {
			if err := stores[i%2].AddGap(h.Context(), g); err != nil {
				h.Errorf("add gap %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	gaps := h.gaps()
	if len(gaps) != 1 || gaps[0].To.Time.T != 1_800_000_000+adders-1 || len(gaps[0].Namespaces) != adders {
		h.Errorf("the gap log is %+v", gaps)
	}
}

func testGapUnfenced(h harness) {
	h.Begin(7) // with or without an owner of a partition
	h.addGap(gapAt(5, 0))
	old := h.terms(7)
	h.mustSave(Shared(old[0], Event(5)))
	if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.wantGaps(gapAt(5, 0))
}

func testDamagedGap(h harness) {
	if h.PutGap == nil {
		return
	}
	h.addGap(gapAt(5, 0))
	h.PutGap(gapAt(9, 0).ID(), []byte(`{"v":2,"from":"elsewhere"}`))
	h.PutGap("strange", []byte("not a gap"))
	gaps, err := h.Store.Gaps(h.Context())
	if len(gaps) != 1 || gaps[0].ID() != gapAt(5, 0).ID() {
		h.Errorf("%+v", gaps)
	}
	if fault.Of(err) == "" || !strings.Contains(err.Error(), gapAt(9, 0).ID()) || !strings.Contains(err.Error(), "strange") {
		h.Errorf("unreadable gaps: %v", err)
	}
	// An unreadable entry blocks no write: an entry of a newer version reports the same loss.
	h.addGap(gapAt(9, 5))
	if gaps, err := h.Store.Gaps(h.Context()); len(gaps) != 1 || err == nil || !strings.Contains(err.Error(), gapAt(9, 0).ID()) {
		h.Errorf("over that of a newer version: %+v, %v", gaps, err)
	}
	h.PutGap(gapAt(9, 0).ID(), []byte("not a gap"))
	h.addGap(gapAt(9, 5))
	if gaps, err := h.Store.Gaps(h.Context()); len(gaps) != 2 || strings.Contains(err.Error(), gapAt(9, 0).ID()) {
		h.Errorf("over a corrupt one: %+v, %v", gaps, err)
	}
	h.addGap(gapAt(10, 5))
}
