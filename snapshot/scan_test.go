package snapshot_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// key is an _id that orders as its number does.
func key(n int) change.Value {
	if n == 0 {
		return change.Value{}
	}
	return change.Value{Type: 0x12, Data: binary.BigEndian.AppendUint64(nil, uint64(n))}
}

func number(v change.Value) int {
	if v.IsZero() {
		return 0
	}
	return int(binary.BigEndian.Uint64(v.Data))
}

// TestEveryReaderGetsEverything has readers come, leave and come back while a scan goes round.
func TestEveryReaderGetsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		documents := rapid.SliceOfNDistinct(rapid.IntRange(1, 60), 0, 30, rapid.ID).Draw(t, "documents")
		slices.Sort(documents)
		type reader struct {
			r   *snapshot.Reader[int]
			got map[int]int
		}
		var readers, away []*reader
		var scan snapshot.Scan[int]
		pages := 0
		for step := 0; step < 60 || len(scan.Readers()) > 0 || len(away) > 0; step++ {
			if step > 10_000 {
				t.Fatal("does not end")
			}
			do := "page"
			if step < 60 {
				do = rapid.SampledFrom([]string{"page", "page", "page", "join", "leave", "return"}).Draw(t, "do")
			} else if len(scan.Readers()) == 0 {
				do = "return"
			}
			switch do {
			case "join":
				r := &reader{&snapshot.Reader[int]{Who: len(readers)}, make(map[int]int)}
				if !scan.Join(r.r) {
					t.Fatal("a new reader cannot join")
				}
				readers = append(readers, r)
			case "leave":
				if in := scan.Readers(); len(in) > 0 {
					r := rapid.SampledFrom(in).Draw(t, "reader")
					scan.Leave(r)
					away = append(away, readers[r.Who])
				}
			case "return":
				if len(away) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(away)-1).Draw(t, "which")
				fits := scan.Fits(away[i].r)
				if scan.Join(away[i].r) {
					if !fits {
						t.Fatal("a reader that does not fit has joined")
					}
					away = slices.Delete(away, i, i+1)
				}
			case "page":
				takers := slices.Clone(scan.Readers())
				if len(takers) == 0 {
					continue
				}
				from, until := scan.Next()
				most := rapid.IntRange(1, 7).Draw(t, "size")
				cut := 0 // the page ends where a reader waits
				if len(away) > 0 {
					cut = number(away[0].r.Left.From)
				}
				var page []int
				var next change.Value
				for _, d := range documents {
					if d < number(from) || !until.IsZero() && d >= number(until) {
						continue
					}
					if len(page) == most || len(page) > 0 && cut == d {
						next = key(d)
						break
					}
					page = append(page, d)
				}
				pages++
				for _, r := range takers {
					for _, d := range page {
						readers[r.Who].got[d]++
					}
				}
				scan.Passed(until, next)
			}
		}
		for i, r := range readers {
			if !r.r.Done {
				t.Fatalf("reader %d is not done", i)
			}
			for _, d := range documents {
				if r.got[d] != 1 {
					t.Fatalf("reader %d got document %d %d times", i, d, r.got[d])
				}
			}
		}
	})
}

// A reader fits into a scan if it is known which others become complete before it. The order of
// strings depends on the collation.
func TestReaderFitsWhereTheOrderIsKnown(t *testing.T) {
	text := func(s string) change.Value {
		return change.Value{Type: change.TypeString, Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1)), s+"\x00"...)}
	}
	for name, c := range map[string]struct {
		until change.Value
		round bool
		fits  bool
	}{
		"another end":    {until: text("b")},
		"the same end":   {until: text("c"), fits: true},
		"an earlier lap": {fits: true},
		"within the lap": {until: text("z"), round: true, fits: true},
	} {
		var scan snapshot.Scan[int]
		scan.Join(&snapshot.Reader[int]{Left: snapshot.Left{From: text("m"), Until: text("c")}})
		r := &snapshot.Reader[int]{Left: snapshot.Left{From: text("m"), Until: c.until, Round: c.round}}
		if fits := scan.Fits(r); fits != c.fits {
			t.Errorf("%s: %t", name, fits)
		}
		if joins := scan.Join(r); joins != c.fits {
			t.Errorf("%s: joins %t", name, joins)
		}
		if !scan.Fits(&snapshot.Reader[int]{}) {
			t.Errorf("%s: a new reader does not fit", name)
		}
	}
}
