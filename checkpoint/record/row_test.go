package record_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/build"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/checkpoint/row"
	"github.com/mongostream/streamer/fault"
)

func rowKey(gateway string) string { return "row/" + gateway }

func rowOf(base change.Position) checkpoint.Row {
	return checkpoint.Row{
		Gateway:    "gw-1",
		Process:    "5f1e9a",
		Started:    time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC),
		Partitions: 64,
		Base:       base,
		Positions: map[change.Partition]change.Position{
			7: change.At(change.Timestamp{T: 1_700_000_000, I: 3}), 63: change.At(change.Timestamp{T: 1_700_000_000, I: 9}),
		},
		SeenAt: time.Date(2024, time.May, 17, 9, 30, 0, 0, time.UTC),
	}
}

func TestStoredRowIsReadableByAPerson(t *testing.T) {
	r := rowOf(change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	value, err := record.EncodeRow(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"n":64,"gateway":"gw-1","process":"5f1e9a","started":"2024-05-17T08:30:00.123Z","base":{"t":1700000000,"i":5},` +
		`"positions":{"63":{"t":1700000000,"i":9},"7":{"t":1700000000,"i":3}},"seen":"2024-05-17T09:30:00Z"}`
	if diff := cmp.Diff(want, string(value)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	// The form is for ever: what an earlier version stored must stay readable.
	got, err := record.DecodeRow("row/gw-1", []byte(want), rowKey)
	if diff := cmp.Diff(r, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeRowRefuses(t *testing.T) {
	value, err := record.EncodeRow(rowOf(checkpointtest.Event(20)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"a newer version":          {`"v":1`, `"v":2`, fault.CheckpointNewer},
		"no version":               {`"v":1,`, ``, fault.CheckpointCorrupt},
		"another gateway":          {`"gw-1"`, `"gw-2"`, fault.CheckpointCorrupt},
		"no partitions":            {`"n":64`, `"n":0`, fault.CheckpointCorrupt},
		"too many partitions":      {`"n":64`, `"n":16385`, fault.CheckpointCorrupt},
		"a partition beyond":       {`"63"`, `"64"`, fault.CheckpointCorrupt},
		"a partition of no number": {`"63"`, `"x"`, fault.CheckpointCorrupt},
		"no base":                  {`"base"`, `"bass"`, fault.CheckpointCorrupt},
		"another time than Base's": {`"t":1700000000,"i":5`, `"t":1700000001,"i":5`, fault.CheckpointCorrupt},
		"a token that is none":     {`"7":{`, `"7":{"token":"AAAA",`, fault.CheckpointCorrupt},
		"a partition nowhere":      {`"7":{"t":1700000000,"i":3}`, `"7":null`, fault.CheckpointCorrupt},
		"a time that is none":      {`"seen":"2024`, `"seen":"soon`, fault.CheckpointCorrupt},
		"half a row":               {`"process"`, ``, fault.CheckpointCorrupt},
	} {
		broken := strings.Replace(string(value), c.old, c.replacement, 1)
		if broken == string(value) {
			t.Fatalf("%s: nothing to break in %s", name, value)
		}
		r, err := record.DecodeRow("row/gw-1", []byte(broken), rowKey)
		if fault.Of(err) != c.code || !strings.Contains(err.Error(), "row/gw-1") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

func TestEncodeRowRefusesWhatItWouldNotRead(t *testing.T) {
	for name, spoil := range map[string]func(r *checkpoint.Row){
		"no gateway":      func(r *checkpoint.Row) { r.Gateway = "" },
		"no base":         func(r *checkpoint.Row) { r.Base = change.Position{} },
		"partition 64":    func(r *checkpoint.Row) { r.Positions = map[change.Partition]change.Position{64: r.Base} },
		"the year 10000":  func(r *checkpoint.Row) { r.SeenAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a year before 0": func(r *checkpoint.Row) { r.Started = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		r := rowOf(checkpointtest.Event(5))
		spoil(&r)
		if value, err := record.EncodeRow(r); err == nil {
			t.Errorf("%s: encoded as %s", name, value)
		}
	}
}

// smallest is the size of the smallest token, which tells a time and nothing else.
const smallest = 35

// sized returns the position of an event whose token has so many bytes, or of those above smallest as many as it needs.
func sized(n, size int) change.Position {
	const high = 4_000_000_000 // ten digits
	if size == smallest {
		at := change.Timestamp{T: high, I: high + uint32(n)}
		return change.Position{Token: build.Document(build.AppendString(nil, "_data", fmt.Sprintf("82%08X%08X", at.T, at.I))), Time: at}
	}
	p := changetest.Event{Time: change.Timestamp{T: high, I: high + uint32(n)}, Index: uint64(n), ID: int64(n)}.Position()
	bits := make([]byte, max(0, size-len(p.Token)-16))
	value := append(binary.LittleEndian.AppendUint32(nil, uint32(len(bits))), 0)
	p.Token = build.Document(build.AppendValue(p.Token[4:len(p.Token)-1:len(p.Token)-1], 0x05, "_typeBits", append(value, bits...)))
	return p
}

// fullest returns a row with all that a row may have, whose tokens have about so many bytes each.
func fullest(size int) checkpoint.Row {
	name := strings.Repeat("\x01", row.MaxName) // each byte of it takes six in JSON
	r := checkpoint.Row{
		Gateway: name, Process: name, Started: time.Date(2024, 10, 10, 10, 10, 10, 123_456_789, time.UTC), Partitions: change.MaxPartitions,
		Base: sized(0, size), Positions: make(map[change.Partition]change.Position, change.MaxPartitions),
		SeenAt: time.Date(2024, 10, 10, 10, 10, 10, 123_456_789, time.UTC),
	}
	for p := range change.Partition(change.MaxPartitions) {
		r.Positions[p] = sized(int(p)+1, size)
	}
	return r
}

func TestNoRowIsLargerThanItsBound(t *testing.T) {
	if n := len(sized(1, smallest).Token); n != smallest {
		t.Fatalf("the smallest token has %d bytes", n)
	}
	largest := 0
	for _, size := range []int{smallest, 0, 133, 134, 135, 300, 1000, 4096, 16<<10 - 1, 16 << 10, 17 << 10} {
		value, err := record.EncodeRow(fullest(size))
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(value))
		if len(value) > row.MaxBytes {
			t.Errorf("tokens of %d bytes make a row of %d, at most %d", size, len(value), row.MaxBytes)
		}
		if _, err := record.DecodeRow(rowKey(strings.Repeat("\x01", row.MaxName)), value, rowKey); err != nil {
			t.Errorf("tokens of %d bytes: %v", size, err)
		}
	}
	if largest < row.MaxBytes*9/10 {
		t.Errorf("the largest has %d bytes: the bound of %d says little, or nothing was large", largest, row.MaxBytes)
	}
}

func TestRowNeverStandsBehindWhatItWasGiven(t *testing.T) {
	positions := rapid.Custom(func(t *rapid.T) change.Position {
		p := sized(rapid.IntRange(0, 50).Draw(t, "event"), rapid.SampledFrom([]int{0, 200, 16 << 10, 17 << 10, 1 << 14}).Draw(t, "size"))
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			p.Token = nil
		case 1:
			p.Token = []byte("strange")
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "partitions")
		want := checkpoint.Row{
			Gateway:    rapid.StringN(1, 64, row.MaxName).Draw(t, "gateway"),
			Process:    rapid.StringN(0, 64, row.MaxName).Draw(t, "process"),
			Started:    time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "started")).UTC(),
			Partitions: n,
			Base:       positions.Draw(t, "base"),
			Positions:  rapid.MapOf(rapid.Map(rapid.IntRange(0, n-1), func(p int) change.Partition { return change.Partition(p) }), positions).Draw(t, "positions"),
			SeenAt:     time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "seen")).UTC(),
		}
		value, err := record.EncodeRow(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.DecodeRow(rowKey(want.Gateway), value, rowKey)
		if err != nil {
			t.Fatal(err)
		}
		tokens := len(got.Base.Token)
		for _, position := range got.Positions {
			tokens += len(position.Token)
		}
		if tokens > 256<<10 {
			t.Fatalf("%d bytes of tokens are kept", tokens)
		}
		for p := range change.Partition(n) {
			given, kept := want.At(p), got.At(p)
			if kept.Time != given.Time || !bytes.Equal(kept.Token, given.Token) && kept.Token != nil {
				t.Fatalf("partition %d is at %s instead of %s", p, kept, given)
			}
			if whole := (checkpoint.Mark{Position: given}).Trimmed().Position; kept.After(whole) {
				t.Fatalf("partition %d is at %s, behind %s", p, kept, whole)
			}
		}
		got.Base, want.Base, got.Positions, want.Positions = change.Position{}, change.Position{}, nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestTokensOfARowAreTrimmedAsThoseOfMarks(t *testing.T) {
	for _, size := range []int{0, 200, 16<<10 - 1, 16 << 10, 16<<10 + 1, 20 << 10} {
		position := sized(1, size)
		r, err := checkpoint.Row{Gateway: "gw-1", Partitions: 1, Base: position}.Trimmed()
		if want := (checkpoint.Mark{Position: position}).Trimmed().Position; err != nil || !cmp.Equal(want, r.Base) {
			t.Errorf("of a token of %d bytes a row keeps %d, a mark %d; %v", len(position.Token), len(r.Base.Token), len(want.Token), err)
		}
	}
}

func TestPartitionsAtTheBaseCostARowNothing(t *testing.T) {
	r := checkpoint.Row{Gateway: "gw-1", Partitions: 64, Base: sized(1, 16<<10), Positions: make(map[change.Partition]change.Position)}
	for p := range change.Partition(63) {
		r.Positions[p] = sized(1, 16<<10)
	}
	r.Positions[63] = sized(2, 16<<10)
	want := map[change.Partition]change.Position{63: r.Positions[63]}
	if got, err := r.Trimmed(); err != nil || !cmp.Equal(want, got.Positions) || !cmp.Equal(r.Base, got.Base) {
		t.Errorf("%d positions are kept, %v", len(got.Positions), err)
	}
	// Nor does one that is there once its token has no room.
	r.Base = change.At(sized(3, 0).Time)
	r.Positions = map[change.Partition]change.Position{63: sized(3, 200)}
	for p := range change.Partition(16) {
		r.Positions[p] = sized(10+int(p), 16<<10)
	}
	got, err := r.Trimmed()
	if err != nil || len(got.Positions) != 16 || got.At(63).Compare(r.Base) != 0 {
		t.Errorf("%d positions are kept, partition 63 is at %s, %v", len(got.Positions), got.At(63), err)
	}
	if again, err := got.Trimmed(); err != nil || !cmp.Equal(got, again) {
		t.Errorf("trimmed again it is another: %v", err)
	}
}

// FuzzDecodeRow reads any bytes as a row: what is refused has a code, what is taken comes back the same.
func FuzzDecodeRow(f *testing.F) {
	for _, base := range []change.Position{checkpointtest.Event(5), change.At(change.Timestamp{T: 1_700_000_000, I: 1})} {
		value, err := record.EncodeRow(rowOf(base))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
		f.Add(bytes.ReplaceAll(value, []byte(`"7"`), []byte(`"007"`)))
	}
	anyKey := func(string) string { return "key" }
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := record.DecodeRow("key", value, anyKey)
		if err != nil {
			switch fault.Of(err) {
			case fault.CheckpointCorrupt, fault.CheckpointNewer:
			default:
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		for _, p := range slices.Sorted(maps.Keys(r.Positions)) {
			if int(p) >= r.Partitions {
				t.Fatalf("partition %d of %d", p, r.Partitions)
			}
		}
		value, err = record.EncodeRow(r)
		if err != nil {
			t.Fatalf("%+v does not go back: %v", r, err)
		}
		if again, err := record.DecodeRow("key", value, anyKey); err != nil || !cmp.Equal(r, again) {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
	})
}
