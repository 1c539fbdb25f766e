package rowtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
)

// A Stored is a row as a store keeps it, or what stands in its place.
type Stored struct {
	Gateway string
	SeenAt  time.Time
	Value   []byte
}

// A Put writes rows past the keeper, damaged ones and very many. It is nil for a keeper without a stored form.
type Put func(t *testing.T, store checkpointtest.Store, rows []Stored)

// Grow makes a gateway's row older by so long, as if so much time had passed for the store since it was saved.
type Grow func(t *testing.T, store checkpointtest.Store, gateway string, by time.Duration)

// TestKeeper runs the suite. Open returns a new, empty store for every case, as for checkpointtest.TestStore.
func TestKeeper(t *testing.T, open func(t *testing.T) checkpointtest.Harness, put Put, grow Grow) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"every field of a row comes back", testFields},
		{"what a caller does to its row afterwards does not matter", testAliasing},
		{"a partition that stands with the others is not kept apart", testCompact},
		{"a token is kept or trimmed as a mark's", testTokens},
		{"the largest row is kept, and stands nowhere too late", testLargest},
		{"a row may be of another number of partitions than the store", testOtherPartitions},
		{"any name is a gateway of its own", testNames},
		{"a row that makes no sense is refused", testRefused},
		{"rows are listed in the order of their gateways", testList},
		{"a deleted row is gone and can be saved again", testDelete},
		{"the last row of a process stands, also where it goes back", testSameProcess},
		{"an older process undoes nothing", testOlderProcess},
		{"of many processes that save at once the newest stands", testRace},
		{"a row that was not renewed for a day is gone", testExpired},
		{"the clocks of those who save and read decide nothing", testClocks},
		{"an old row that is renewed stays", testRenewed},
		{"of too many rows the oldest make room", testTooMany},
		{"rows and marks do not touch each other", testMarks},
		{"what operators do to marks leaves rows alone", testOperators},
		{"after the caller gave up everything is an error", testCanceled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(newHarness(t, open, put, grow)) })
	}
	if put != nil {
		t.Run("a damaged row is refused, left as it is, and harms no other", func(t *testing.T) { testDamage(newHarness(t, open, put, grow)) })
	}
}

// harness adds to a checkpointtest.Harness what the cases say over and over.
type harness struct {
	checkpointtest.Harness
	*testing.T

	put  Put
	grow Grow
	rows checkpoint.RowKeeper // those of Store
	now  time.Time
}

func newHarness(t *testing.T, open func(t *testing.T) checkpointtest.Harness, put Put, grow Grow) harness {
	t.Helper()
	h := harness{Harness: open(t), T: t, put: put, grow: grow, now: time.Now().Round(0).UTC()}
	h.rows = h.keeper(h.Store)
	return h
}

// keeper is a store's other side.
func (h harness) keeper(s checkpointtest.Store) checkpoint.RowKeeper {
	h.Helper()
	rows, ok := s.(checkpoint.RowKeeper)
	if !ok {
		h.Fatalf("%T keeps no rows", s)
	}
	return rows
}

// reopened are the rows as another process finds them.
func (h harness) reopened() checkpoint.RowKeeper {
	h.Helper()
	return h.keeper(h.Reopen())
}

// row returns a row of a gateway that stands at an event, seen now.
func (h harness) row(gateway string, event int) checkpoint.Row {
	return checkpoint.Row{
		Gateway: gateway, Process: "5f1e9a", Started: h.now.Add(-time.Hour), Partitions: checkpointtest.Partitions,
		Base: checkpointtest.Event(event), SeenAt: h.now,
	}
}

func (h harness) save(r checkpoint.Row) {
	h.Helper()
	if err := h.rows.SaveRow(h.Context(), r); err != nil {
		h.Fatalf("save row of %q: %v", r.Gateway, err)
	}
}

// fill saves many rows, fast.
func (h harness) fill(rows []checkpoint.Row) {
	h.Helper()
	stored := make([]Stored, len(rows))
	for i, r := range rows {
		if h.put == nil {
			h.save(r)
			continue
		}
		value, err := record.EncodeRow(r)
		if err != nil {
			h.Fatal(err)
		}
		stored[i] = Stored{r.Gateway, r.SeenAt, value}
	}
	if h.put != nil {
		h.put(h.T, h.Store, stored)
	}
}

// want checks the row of a gateway.
func (h harness) want(want checkpoint.Row) {
	h.Helper()
	got, ok, err := h.reopened().Row(h.Context(), want.Gateway)
	if diff := cmp.Diff(want, got); err != nil || !ok || diff != "" {
		h.Errorf("row of %q: %t, %v (-want +got):\n%s", want.Gateway, ok, err, diff)
	}
}

// wantNone checks that a gateway has no row.
func (h harness) wantNone(gateway string) {
	h.Helper()
	if got, ok, err := h.reopened().Row(h.Context(), gateway); err != nil || ok {
		h.Errorf("row of %q: %+v, %t, %v", gateway, got, ok, err)
	}
}

// wantAll checks all rows.
func (h harness) wantAll(want ...checkpoint.Row) {
	h.Helper()
	got, err := h.reopened().Rows(h.Context())
	for i := range got {
		got[i].Age = 0 // a store tells it as it can
	}
	if diff := cmp.Diff(append([]checkpoint.Row{}, want...), append([]checkpoint.Row{}, got...)); err != nil || diff != "" {
		h.Errorf("the rows: %v (-want +got):\n%s", err, diff)
	}
}

// at makes a map of one position.
func at(p change.Partition, position change.Position) map[change.Partition]change.Position {
	return map[change.Partition]change.Position{p: position}
}
