package rowtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/build"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

func testFields(h harness) {
	h.wantNone("gw-1")
	h.wantAll()
	r := h.row("gw-1", 50)
	r.Started = time.Date(2024, time.May, 17, 8, 30, 0, 123_456_789, time.UTC)
	r.SeenAt = h.now.Add(-time.Minute).Truncate(time.Second).Add(987_654_321)
	r.Positions = map[change.Partition]change.Position{
		0: checkpointtest.Event(40), 7: checkpointtest.Event(60), 255: change.At(change.Timestamp{T: 1_700_000_000, I: 3}),
		9: changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 5}),
	}
	h.save(r)
	h.want(r)
	h.wantAll(r)
	if got := r.At(7); got.Compare(r.Positions[7]) != 0 {
		h.Errorf("partition 7 stands at %s", got)
	}
	if got := r.At(8); got.Compare(r.Base) != 0 {
		h.Errorf("partition 8 stands at %s", got)
	}
}

func testAliasing(h harness) {
	r, same := h.row("gw-1", 50), h.row("gw-1", 50)
	r.Positions, same.Positions = at(7, checkpointtest.Event(40)), at(7, checkpointtest.Event(40))
	h.save(r)
	clear(r.Base.Token)
	clear(r.Positions[7].Token)
	clear(r.Positions)
	h.want(same)
	got, _, err := h.rows.Row(h.Context(), "gw-1")
	if err != nil {
		h.Fatal(err)
	}
	clear(got.Base.Token)
	clear(got.Positions[7].Token)
	clear(got.Positions)
	h.want(same)
	all, err := h.rows.Rows(h.Context())
	if err != nil || len(all) != 1 {
		h.Fatalf("%d rows, %v", len(all), err)
	}
	clear(all[0].Base.Token)
	clear(all[0].Positions)
	h.want(same)
}

func testCompact(h harness) {
	r := h.row("gw-1", 50)
	r.Positions = make(map[change.Partition]change.Position)
	for p := range change.Partition(checkpointtest.Partitions) {
		r.Positions[p] = checkpointtest.Event(50)
	}
	r.Positions[3] = checkpointtest.Event(51)
	h.save(r)
	r.Positions = at(3, checkpointtest.Event(51))
	h.want(r)
}

func testTokens(h harness) {
	// One that is as large as a token may be, one that is larger by a byte, and one that nobody can read.
	for name, position := range map[string]change.Position{
		"at the limit": placed(1, 16<<10), "above": placed(1, 16<<10+1),
		"strange": {Token: []byte("strange"), Time: change.Timestamp{T: 1_800_000_000, I: 7}},
	} {
		kept := checkpoint.Mark{Position: position}.Trimmed().Position
		if trimmed := len(kept.Token) == 0; trimmed != (name != "at the limit") {
			h.Fatalf("%s: a mark keeps %d bytes", name, len(kept.Token))
		}
		r := h.row(name, 50)
		r.Positions = at(7, position)
		h.save(r)
		r.Positions = at(7, kept)
		h.want(r)
		r.Base, r.Positions = position, at(7, checkpointtest.Event(50))
		h.save(r)
		r.Base = kept
		h.want(r)
	}
}

// placed returns the position of an event whose token has so many bytes, most of them of the kind that a composite _id leaves.
func placed(n, size int) change.Position {
	p := changetest.Event{Time: change.Timestamp{T: 4_000_000_000, I: 4_000_000_000}, Index: uint64(n), ID: int64(n)}.Position()
	const overhead = 1 + len("_typeBits\x00") + 4 + 1
	bits := make([]byte, size-len(p.Token)-overhead)
	value := append(binary.LittleEndian.AppendUint32(nil, uint32(len(bits))), 0)
	p.Token = build.Document(build.AppendValue(p.Token[4:len(p.Token)-1:len(p.Token)-1], 0x05, "_typeBits", append(value, bits...)))
	return p
}

func testLargest(h harness) {
	// Names that JSON makes six times as large, and in all partitions there are, positions that all differ, with tokens that all
	// together are much too large.
	name := strings.Repeat("\x01", 256)
	for _, size := range []int{16 << 10, 200} {
		r := h.row(name, 1)
		r.Process, r.Partitions, r.Base = name, change.MaxPartitions, placed(1, 16<<10)
		r.Positions = make(map[change.Partition]change.Position)
		for p := range change.Partition(change.MaxPartitions) {
			r.Positions[p] = placed(int(p)+2, size)
		}
		h.save(r)
		got, ok, err := h.reopened().Row(h.Context(), name)
		if err != nil || !ok || len(got.Positions) != change.MaxPartitions {
			h.Fatalf("%d positions, %t, %v", len(got.Positions), ok, err)
		}
		whole := 0
		for p, position := range got.Positions {
			sent := r.Positions[p]
			switch {
			case bytes.Equal(position.Token, sent.Token):
				whole++
			case len(position.Token) > 0 || position.After(sent) || position.Time != sent.Time:
				h.Fatalf("partition %d stands at %s instead of %s", p, position, sent)
			}
		}
		if want := (256<<10 - 16<<10) / size; whole != want {
			h.Errorf("%d tokens of %d bytes are kept, want %d", whole, size, want)
		}
	}
}

func testOtherPartitions(h harness) {
	for _, n := range []int{1, 64, change.MaxPartitions} {
		r := h.row("gw-1", 50)
		r.Partitions, r.Positions = n, at(change.Partition(n-1), checkpointtest.Event(60))
		h.save(r)
		h.want(r)
		h.wantAll(r)
	}
}

func testNames(h harness) {
	names := []string{
		"gw", "gw/", "gw/1", "gw/1/2", "/gw", "gw%2F1", "gw%252F1", "gw%", "gw+1", "gw 1", " gw", "GW", "é", "e\u0301", "\x00", "gw\x00", "\n", ".", "..",
		"../mark/00007", "../../c1/origin", "$where", "a.b", "🛰", "\ufffd", `"`, `\`, "\u2028", strings.Repeat("x", 256), strings.Repeat("🛰", 64),
		strings.Repeat("/", 256),
	}
	rows := make([]checkpoint.Row, len(names))
	for i, name := range names {
		rows[i] = h.row(name, i+1)
		h.save(rows[i])
	}
	for _, r := range rows {
		h.want(r)
	}
	slices.SortFunc(rows, func(a, b checkpoint.Row) int { return strings.Compare(a.Gateway, b.Gateway) })
	h.wantAll(rows...)
	for i, r := range rows {
		if err := h.rows.DeleteRow(h.Context(), r.Gateway); err != nil {
			h.Fatalf("delete row of %q: %v", r.Gateway, err)
		}
		h.wantAll(rows[i+1:]...)
	}
	for _, name := range []string{"", "\xff", strings.Repeat("x", 257), "nobody"} {
		h.wantNone(name)
	}
}

func testRefused(h harness) {
	for name, spoil := range map[string]func(r *checkpoint.Row){
		"no gateway":                  func(r *checkpoint.Row) { r.Gateway = "" },
		"a gateway of 257 bytes":      func(r *checkpoint.Row) { r.Gateway = strings.Repeat("x", 257) },
		"a gateway that is not UTF-8": func(r *checkpoint.Row) { r.Gateway = "gw\xff" },
		"a process of 257 bytes":      func(r *checkpoint.Row) { r.Process = strings.Repeat("x", 257) },
		"a process that is not UTF-8": func(r *checkpoint.Row) { r.Process = "\xff" },
		"no partitions":               func(r *checkpoint.Row) { r.Partitions = 0 },
		"too many partitions":         func(r *checkpoint.Row) { r.Partitions = change.MaxPartitions + 1 },
		"no base":                     func(r *checkpoint.Row) { r.Base = change.Position{} },
		"a base of no time":           func(r *checkpoint.Row) { r.Base = change.Position{Token: []byte("strange")} },
		"a token of another time":     func(r *checkpoint.Row) { r.Base.Time.I++ },
		"partition 256 of 256":        func(r *checkpoint.Row) { r.Positions = at(256, checkpointtest.Event(1)) },
		"a partition that is nowhere": func(r *checkpoint.Row) { r.Positions = at(7, change.Position{}) },
	} {
		r := h.row("gw-1", 50)
		spoil(&r)
		if err := h.rows.SaveRow(h.Context(), r); err == nil {
			h.Errorf("%s: saved", name)
		}
	}
	h.wantAll()
}

func testList(h harness) {
	a, b, c := h.row("a", 1), h.row("b", 2), h.row("b/1", 3)
	for _, r := range []checkpoint.Row{c, a, b} {
		h.save(r)
	}
	h.wantAll(a, b, c)
}

func testDelete(h harness) {
	if err := h.rows.DeleteRow(h.Context(), "gw-1"); err != nil {
		h.Errorf("delete where there is none: %v", err)
	}
	h.save(h.row("gw-1", 50))
	h.save(h.row("gw-2", 50))
	if err := h.rows.DeleteRow(h.Context(), "gw-1"); err != nil {
		h.Fatal(err)
	}
	h.wantNone("gw-1")
	h.wantAll(h.row("gw-2", 50))
	h.save(h.row("gw-1", 3))
	h.want(h.row("gw-1", 3))
}

func testCanceled(h harness) {
	h.save(h.row("gw-1", 50))
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	if err := h.rows.SaveRow(ctx, h.row("gw-1", 60)); err == nil {
		h.Error("saved")
	}
	if _, _, err := h.rows.Row(ctx, "gw-1"); err == nil {
		h.Error("read")
	}
	if _, err := h.rows.Rows(ctx); err == nil {
		h.Error("listed")
	}
	if err := h.rows.DeleteRow(ctx, "gw-1"); err == nil {
		h.Error("deleted")
	}
	h.want(h.row("gw-1", 50))
}
