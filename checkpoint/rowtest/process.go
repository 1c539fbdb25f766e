package rowtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/row"
	"github.com/mongostream/streamer/fault"
)

func testSameProcess(h harness) {
	for _, event := range []int{50, 60, 60, 20} {
		h.save(h.row("gw-1", event))
		h.want(h.row("gw-1", event))
	}
	// It may have told its start with a clock that was set meanwhile.
	r := h.row("gw-1", 30)
	r.Started = r.Started.Add(-time.Hour)
	h.save(r)
	h.want(r)
}

func testOlderProcess(h harness) {
	older, newer := h.row("gw-1", 90), h.row("gw-1", 40)
	older.Process, newer.Process = "older", "newer"
	newer.Started = older.Started.Add(time.Nanosecond)
	h.save(older)
	h.save(newer)
	h.want(newer)
	// Later by the clock of whoever saves it, and further on: it is still of a process that is no more.
	older.SeenAt = older.SeenAt.Add(time.Minute)
	for _, rows := range []checkpoint.RowKeeper{h.rows, h.reopened()} {
		if err := rows.SaveRow(h.Context(), older); !errors.Is(err, checkpoint.ErrRowSuperseded) {
			h.Errorf("an older process: %v", err)
		}
		h.want(newer)
	}
	// Nobody can tell which of two is newer that started at the same time.
	equal := h.row("gw-1", 30)
	equal.Process, equal.Started = "another", newer.Started
	h.save(equal)
	h.want(equal)
	// Another gateway is not concerned.
	other := h.row("gw-2", 10)
	other.Process, other.Started = "older", older.Started
	h.save(other)
	h.wantAll(equal, other)
}

func testRace(h harness) {
	const processes = 16
	stores := []checkpoint.RowKeeper{h.rows, h.reopened()}
	process := func(i int) checkpoint.Row {
		r := h.row("gw-1", 100-i)
		r.Process, r.Started = fmt.Sprint(i), r.Started.Add(time.Duration(i)*time.Second)
		return r
	}
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			err := stores[i%2].SaveRow(h.Context(), process(i))
			if err != nil && (i == processes-1 || !errors.Is(err, checkpoint.ErrRowSuperseded)) {
				h.Errorf("process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	h.wantAll(process(processes - 1))
}

// older makes a gateway's row older, by the store's reckoning.
func (h harness) older(gateway string, by time.Duration) {
	h.Helper()
	h.grow(h.T, h.Store, gateway, by)
}

func testExpired(h harness) {
	for _, gateway := range []string{"old", "older", "young"} {
		h.save(h.row(gateway, 50))
	}
	h.older("old", row.Life+2*time.Hour)
	h.older("older", 365*24*time.Hour)
	h.older("young", row.Life-2*time.Hour)
	h.wantNone("old")
	h.wantNone("older")
	h.wantAll(h.row("young", 50))
	h.wantAll(h.row("young", 50))
	rows, err := h.reopened().Rows(h.Context())
	if err != nil || len(rows) != 1 || rows[0].Age < row.Life-3*time.Hour-time.Minute || rows[0].Age > row.Life-time.Hour {
		h.Errorf("%+v, %v", rows, err)
	}
	// What is gone refuses nobody, also where it was of a process that started later.
	gone := h.row("old", 50)
	gone.Process, gone.Started = "newer", h.now
	h.save(gone)
	h.older("old", row.Life+2*time.Hour)
	again := h.row("old", 20)
	h.save(again)
	h.wantAll(again, h.row("young", 50))
}

// Nodes save a row and read it whose clocks are wrong by any time.
func testClocks(h harness) {
	slow, fast := h.row("slow", 50), h.row("fast", 50)
	slow.SeenAt, fast.SeenAt = h.now.AddDate(-1, 0, 0), h.now.AddDate(1, 0, 0)
	for _, r := range []checkpoint.Row{slow, fast} {
		h.save(r)
		h.want(r)
		earlier := h.row(r.Gateway, 60)
		earlier.Process, earlier.Started = "earlier", r.Started.Add(-time.Second)
		if err := h.reopened().SaveRow(h.Context(), earlier); !errors.Is(err, checkpoint.ErrRowSuperseded) {
			h.Errorf("%s: an earlier process: %v", r.Gateway, err)
		}
	}
	h.wantAll(fast, slow)
	rows, err := h.reopened().Rows(h.Context())
	if err != nil || rows[0].Age > time.Hour || rows[1].Age > time.Hour {
		h.Errorf("%+v, %v", rows, err)
	}
	h.older("slow", row.Life+2*time.Hour)
	h.older("fast", row.Life+2*time.Hour)
	h.wantAll()
}

func testRenewed(h harness) {
	r := h.row("gw-1", 50)
	h.save(r)
	h.older("gw-1", row.Life+2*time.Hour)
	h.wantNone("gw-1")
	h.save(r)
	h.wantAll(r)
	h.older("gw-1", row.Life-2*time.Hour)
	h.save(r)
	h.older("gw-1", row.Life-2*time.Hour)
	h.wantAll(r)
}

func testTooMany(h harness) {
	const more = 3
	numbered := func(n int) checkpoint.Row {
		r := h.row(fmt.Sprintf("gw-%05d", n), 50)
		r.Positions = at(change.Partition(n%checkpointtest.Partitions), checkpointtest.Event(n))
		return r
	}
	for n := range 5 { // those that were saved first are those that were seen first
		h.save(numbered(n))
	}
	var others []checkpoint.Row
	for n := 5; n < checkpoint.MaxRows; n++ {
		r := numbered(n)
		r.SeenAt = time.Now().Add(time.Hour) // where that is the store's: after those before, and not renewed
		others = append(others, r)
	}
	h.fill(others)
	count := func() int {
		h.Helper()
		rows, err := h.reopened().Rows(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		return len(rows)
	}
	if n := count(); n != checkpoint.MaxRows {
		h.Fatalf("%d rows are kept, want all %d", n, checkpoint.MaxRows)
	}
	// One that is renewed is not the oldest any more, and needs no room.
	renewed := numbered(1)
	h.save(renewed)
	for n := range more {
		r := numbered(checkpoint.MaxRows + n)
		h.save(r)
		h.want(r)
	}
	// Looked at one by one, because a listing may drop what is too many too.
	h.want(renewed)
	for _, n := range []int{0, 2, 3} {
		h.wantNone(numbered(n).Gateway)
	}
	h.want(numbered(4))
	if n := count(); n != checkpoint.MaxRows {
		h.Errorf("%d rows are kept, want %d", n, checkpoint.MaxRows)
	}
}

func testDamage(h harness) {
	good, bad := h.row("good", 50), h.row("bad/1", 50)
	h.save(good)
	for name, c := range map[string]struct {
		value string
		code  fault.Code
	}{
		"a newer version":         {`{"v":2,"rows":"kept differently"}`, fault.MarkNewer},
		"garbage":                 {"not a row", fault.MarkCorrupt},
		"nothing":                 {"", fault.MarkCorrupt},
		"another gateway's":       {`{"v":1,"n":4,"gateway":"good","base":{"t":1,"i":1}}`, fault.MarkCorrupt},
		"no position":             {`{"v":1,"n":4,"gateway":"bad/1","process":"p"}`, fault.MarkCorrupt},
		"more than any partition": {`{"v":1,"n":4,"gateway":"bad/1","base":{"t":1,"i":1},"positions":{"4":{"t":1,"i":1}}}`, fault.MarkCorrupt},
	} {
		h.Run(name, func(t *testing.T) {
			h.T = t
			h.save(bad)
			h.put(t, h.Store, []Stored{{bad.Gateway, bad.SeenAt, []byte(c.value)}})
			named := func(what string, err error) {
				t.Helper()
				if fault.Of(err) != c.code || !strings.Contains(err.Error(), "bad") {
					t.Errorf("%s: %v, want %s", what, err, c.code)
				}
			}
			for range 2 {
				_, ok, err := h.reopened().Row(t.Context(), bad.Gateway)
				if ok {
					t.Error("it was read")
				}
				named("read", err)
				rows, err := h.reopened().Rows(t.Context())
				named("list", err)
				for i := range rows {
					rows[i].Age = 0
				}
				if diff := cmp.Diff([]checkpoint.Row{good}, rows); diff != "" {
					t.Errorf("the others (-want +got):\n%s", diff)
				}
				named("save", h.reopened().SaveRow(t.Context(), bad))
			}
			h.want(good)
			h.save(good)
			if err := h.rows.DeleteRow(t.Context(), bad.Gateway); err != nil {
				t.Fatal(err)
			}
			h.wantAll(good)
		})
	}
}
