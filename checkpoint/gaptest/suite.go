package gaptest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// TestKeeper runs the suite. Open returns a new, empty store for every case, as for checkpointtest.TestStore.
func TestKeeper(t *testing.T, open func(t *testing.T) checkpointtest.Harness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"every field of a gap comes back", testFields},
		{"gaps are listed as they were found", testOrder},
		{"a gap added again keeps what was found first", testAgain},
		{"a poison event is one gap whatever the partition", testPoison},
		{"a token too large to keep is kept as its time", testLargeToken},
		{"of too many gaps the oldest are dropped", testTooMany},
		{"gaps of many partitions at once are all kept", testRace},
		{"one gap added by many at once is one", testSameRace},
		{"the gap log needs no owner and outlives terms", testUnfenced},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(harness{open(t), t}) })
	}
}

type harness struct {
	checkpointtest.Harness
	*testing.T
}

// found is when the first gap of a case was found.
var found = time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC) //nolint:gochecknoglobals // a constant

// gapAt returns a gap of a partition behind an event, found so many seconds after the first.
func gapAt(p change.Partition, event, seconds int) checkpoint.Gap {
	return checkpoint.Gap{
		Partition: p, From: checkpointtest.Event(event), To: change.At(change.Timestamp{T: 1_800_000_000, I: 1}), Reason: "history_lost",
		Fingerprint: "5f1e9a", Epoch: change.Epoch{Incarnation: 1, Revision: 2}, Found: found.Add(time.Duration(seconds) * time.Second), By: "node-a",
	}
}

func (h harness) add(g checkpoint.Gap) {
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

func (h harness) want(gaps ...checkpoint.Gap) {
	h.Helper()
	if diff := cmp.Diff(gaps, h.gaps()); diff != "" {
		h.Errorf("the gap log is otherwise (-want +got):\n%s", diff)
	}
}

func testFields(h harness) {
	if gaps := h.gaps(); len(gaps) != 0 {
		h.Errorf("nothing was added, and there is %v", gaps)
	}
	g := gapAt(7, 5, 0)
	g.Namespaces = []string{"shop.orders", "stock.*"}
	g.Rescan = map[string]checkpoint.RescanState{
		"shop.orders": {After: []byte{5, 0, 0, 0, 0}}, "shop.items": {Done: true}, "shop.with.dots": {},
	}
	h.add(g)
	h.want(g)
	// What a caller does to its gap afterwards does not matter.
	clear(g.Namespaces)
	clear(g.Rescan)
	if got := h.gaps()[0]; len(got.Rescan) != 3 || got.Namespaces[0] != "shop.orders" {
		h.Errorf("the gap became %+v", got)
	}
}

func testOrder(h harness) {
	third, first, second := gapAt(1, 5, 20), gapAt(200, 80, 0), gapAt(3, 40, 10)
	for _, g := range []checkpoint.Gap{third, first, second} {
		h.add(g)
	}
	h.want(first, second, third)
}

func testAgain(h harness) {
	first := gapAt(7, 5, 0)
	first.Namespaces = []string{"shop.orders"}
	first.Rescan = map[string]checkpoint.RescanState{"shop.orders": {After: []byte{5, 0, 0, 0, 0}}}
	h.add(first)
	again := gapAt(7, 5, 60)
	again.Epoch.Revision, again.By, again.Namespaces = 9, "node-b", []string{"shop.items", "shop.orders"}
	again.To = change.At(change.Timestamp{T: 1_800_000_900, I: 1})
	again.Rescan = map[string]checkpoint.RescanState{"shop.orders": {Done: true}}
	for range 2 {
		h.add(again)
		want := first
		want.To, want.Rescan, want.Namespaces = again.To, again.Rescan, again.Namespaces
		h.want(want)
	}
	shorter := gapAt(7, 5, 90)
	if err := h.Reopen().AddGap(h.Context(), shorter); err != nil {
		h.Fatalf("add gap: %v", err)
	}
	want := first
	want.To, want.Rescan, want.Namespaces = again.To, again.Rescan, nil // a rescan goes on where it was
	h.want(want)
	h.add(gapAt(7, 6, 100))
	h.add(gapAt(8, 5, 101))
	if n := len(h.gaps()); n != 3 {
		h.Errorf("%d gaps, two more begin elsewhere", n)
	}
}

func testPoison(h harness) {
	var first checkpoint.Gap
	for i := range 5 {
		g := gapAt(change.Partition(i), 5, i)
		g.Reason = "poison"
		if i == 0 {
			first = g
		}
		h.add(g)
	}
	h.want(first)
	other := gapAt(0, 6, 9)
	other.Reason = "poison"
	h.add(other)
	h.want(first, other)
	lost := gapAt(0, 5, 10)
	h.add(lost)
	h.want(first, other, lost)
}

func testLargeToken(h harness) {
	g := gapAt(0, 5, 0)
	g.From.Token = append(slices.Clone(g.From.Token), make([]byte, 16<<10)...)
	g.To = change.Position{Token: []byte("strange"), Time: change.Timestamp{T: 1_800_000_000, I: 7}}
	h.add(g)
	h.add(g)
	g.From, g.To = change.At(g.From.Time), change.At(g.To.Time)
	h.want(g)
}

func testTooMany(h harness) {
	const more = 3
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := worker; n < checkpoint.MaxGaps+more; n += 8 {
				h.add(gapAt(change.Partition(n%checkpointtest.Partitions), n, n))
			}
		})
	}
	wg.Wait()
	h.add(gapAt(0, 5000, 5000))
	gaps := h.gaps()
	if len(gaps) != checkpoint.MaxGaps {
		h.Fatalf("%d gaps are kept, want %d", len(gaps), checkpoint.MaxGaps)
	}
	if oldest := gaps[0].Found.Sub(found); oldest != (more+1)*time.Second {
		h.Errorf("the oldest was found after %s", oldest)
	}
	// One that is there already needs no room.
	h.add(gapAt(0, 5000, 6000))
	if again := h.gaps(); len(again) != checkpoint.MaxGaps || again[0].ID() != gaps[0].ID() {
		h.Errorf("%d gaps, the oldest %s", len(again), again[0].ID())
	}
}

func testRace(h harness) {
	var wg sync.WaitGroup
	stores := []checkpointtest.Store{h.Store, h.Reopen()}
	for i := range 16 {
		wg.Go(func() {
			if err := stores[i%2].AddGap(h.Context(), gapAt(change.Partition(i), 5, i)); err != nil {
				h.Errorf("add gap %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := len(h.gaps()); n != 16 {
		h.Errorf("%d gaps", n)
	}
}

func testSameRace(h harness) {
	var wg sync.WaitGroup
	stores := []checkpointtest.Store{h.Store, h.Reopen()}
	const adders = 8
	for i := range adders {
		g := gapAt(7, 5, i)
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

func testUnfenced(h harness) {
	h.Begin(7) // somebody owns the partition, or nobody does
	h.add(gapAt(7, 5, 0))
	h.add(gapAt(8, 5, 1))
	if n := len(h.gaps()); n != 2 {
		h.Errorf("%d gaps", n)
	}
}
