package match

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/match/expr"
)

func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var table table[int]
		want := make(map[string]int)
		for range rapid.IntRange(0, 200).Draw(r, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 60).Draw(r, "key"))
			if rapid.IntRange(0, 2).Draw(r, "step") > 0 {
				want[key] = len(want)
				table.Put(key, want[key])
			} else {
				delete(want, key)
				table.Delete(key)
			}
		}
		if got := maps.Collect(table.All()); !maps.Equal(got, want) || table.Len() != len(want) {
			r.Fatalf("%v (%d), want %v", got, table.Len(), want)
		}
		for i := range 60 {
			key := fmt.Sprint(i)
			value, ok := want[key]
			if got, found := table.Get([]byte(key)); found != ok || got != value {
				r.Fatalf("%s: %d, %v; want %d, %v", key, got, found, value, ok)
			}
		}
	})
}

// A key that stays is found at every moment, whatever is put and deleted around it.
func TestTableNeverLosesAKeyWhileItChanges(t *testing.T) {
	var table table[int]
	table.Put("stays", 1)
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			if _, ok := table.Get([]byte("stays")); !ok {
				t.Error("not found")
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for round := range 50 {
		for i := range 200 {
			table.Put(fmt.Sprint(i), round)
		}
		table.Put("stays", round)
		for i := range 200 {
			table.Delete(fmt.Sprint(i))
		}
	}
	close(done)
	reader.Wait()
}

// A span is an interval with its order.
type span struct {
	in    interval
	order uint64
}

func drawBound(r *rapid.T) bound {
	if rapid.IntRange(0, 4).Draw(r, "far") == 0 {
		return bound{Far: true}
	}
	return bound{At: drawScalar(r), Open: rapid.Bool().Draw(r, "open")}
}

func drawScalar(r *rapid.T) expr.Scalar {
	n := rapid.IntRange(-3, 3).Draw(r, "n")
	switch rapid.IntRange(0, 2).Draw(r, "kind") {
	case 0:
		return expr.IntScalar(int64(n))
	case 1:
		return expr.DoubleScalar(float64(n) / 2)
	}
	// The same double, other numbers.
	return expr.IntScalar(1<<53 + int64(n))
}

func (s span) contains(p expr.Scalar) bool {
	low, high := s.in.Low, s.in.High
	above := low.Far || cmp.Compare(p.Compare(low.At), 0) > 0 || p.Compare(low.At) == 0 && !low.Open
	below := high.Far || p.Compare(high.At) < 0 || p.Compare(high.At) == 0 && !high.Open
	return above && below
}

func TestRangesFindTheIntervalsOfAPoint(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var ranges ranges[uint64]
		var spans []span
		for order := range uint64(rapid.SampledFrom([]int{0, 3, 30, 400}).Draw(r, "steps")) {
			// First more come than go, then more go than come.
			if len(spans) > 0 && (rapid.IntRange(0, 3).Draw(r, "step") == 0) == (order < 250) {
				i := rapid.IntRange(0, len(spans)-1).Draw(r, "which")
				ranges.Remove(spans[i].in, spans[i].order)
				spans = slices.Delete(spans, i, i+1)
				continue
			}
			s := span{interval{Low: drawBound(r), High: drawBound(r)}, order}
			ranges.Insert(s.in, s.order, order)
			spans = append(spans, s)
		}
		var all, want, got []uint64
		point := drawScalar(r)
		for _, s := range spans {
			all = append(all, s.order)
			if s.contains(point) {
				want = append(want, s.order)
			}
		}
		ranges.Stab(point, func(v uint64) { got = append(got, v) })
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			r.Fatalf("%+v: %v, want %v", point, got, want)
		}
		var each []uint64
		ranges.Each(func(v uint64) { each = append(each, v) })
		slices.Sort(each)
		if slices.Sort(all); !slices.Equal(each, all) || ranges.IsEmpty() != (len(all) == 0) {
			r.Fatalf("each: %v, want %v", each, all)
		}
	})
}

// What a reader holds does not change, whatever is added and removed.
func TestListsOfReadersStayAsTheyAre(t *testing.T) {
	var list list[int]
	var held [][]int
	var want [][]int
	for i := range 100 {
		list.Add(i)
		if i%7 == 0 {
			list.Remove(i / 2)
		}
		held = append(held, list.Values())
		want = append(want, slices.Clone(list.Values()))
	}
	for i := range held {
		if !slices.Equal(held[i], want[i]) {
			t.Fatalf("%v became %v", want[i], held[i])
		}
	}
	list.Remove(-1)
	if len(list.Values()) != len(want[99]) {
		t.Error("something was removed for what was not there")
	}
}
