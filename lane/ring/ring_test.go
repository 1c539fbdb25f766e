package ring_test

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/lane/ring"
)

// slotOf splits a reply of events, of which some are of no document; it is nil for none.
func slotOf(t interface{ Fatal(args ...any) }, partitions int, keyless []bool) *ring.Slot {
	r := ring.Reply{}
	for i, keyless := range keyless {
		e := changetest.Event{ID: int64(i), Time: change.Timestamp{T: 1000, I: uint32(i + 1)}, Keyless: keyless}
		r.Events = append(r.Events, e.Bytes())
		r.Size += len(r.Events[i])
		r.End = e.Position()
	}
	s, _, err := ring.NewSplitter(partitions, change.Position{}, nil).Split(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is kept beside the replies' bytes is counted: an event of no document is every partition's, and kept once.
func TestRingCountsTheMemoryOfEventsOfNoDocument(t *testing.T) {
	const partitions, drops = 4096, 2000
	only, before, between := make([]bool, drops), make([]bool, drops+2*partitions), make([]bool, drops+2*partitions)
	for i := range drops {
		only[i], before[i], between[2*i] = true, true, true
	}
	for name, keyless := range map[string][]bool{"drops alone": only, "before changes in all partitions": before, "between them": between} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			r := ring.New(1<<30, change.Position{})
			runtime.GC()
			runtime.ReadMemStats(&before)
			r.Append(slotOf(t, partitions, keyless), 0)
			runtime.GC()
			runtime.ReadMemStats(&after)
			held, counted := int64(after.HeapAlloc)-int64(before.HeapAlloc), r.Bytes()
			if held > counted+counted/2 || counted > 8<<20 {
				t.Errorf("%d bytes are held, %d counted", held, counted)
			}
			runtime.KeepAlive(r)
		})
	}
}

// A partition's batch is what concerns its documents and what concerns none, in the order of the log.
func TestBatchesHoldTheEventsOfNoDocumentInTheirPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 8).Draw(t, "partitions")
		kinds := rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "keyless")
		s := slotOf(t, partitions, kinds)
		if s == nil {
			return
		}
		of := change.NewPartitioner(partitions)
		for p := range change.Partition(partitions) {
			var want []uint32
			for i := range s.Events {
				if q, keyed := of.Of(&s.Events[i]); !keyed || q == p {
					want = append(want, s.Events[i].Time().I)
				}
			}
			first := rapid.IntRange(0, len(want)).Draw(t, "first")
			b := s.Lane(p, first)
			var got []uint32
			for i := range b.Len() {
				got = append(got, b.Event(i).Time().I)
			}
			if !slices.Equal(got, want[first:]) {
				t.Fatalf("partition %d from %d on: %v, want %v", p, first, got, want[first:])
			}
			if concerned := slices.Contains(slices.Collect(s.Partitions(partitions)), p); concerned != (len(want) > 0) {
				t.Fatalf("partition %d is concerned: %v", p, concerned)
			}
		}
	})
}

func TestAnEventIsNotLargerThanItCounts(t *testing.T) {
	if size := unsafe.Sizeof(change.Event{}); size > 96 {
		t.Errorf("an event takes %d bytes", size)
	}
}
