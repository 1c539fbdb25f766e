package ring_test

import (
	"fmt"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/lane/ring"
)

// replyOf makes a reply of so many inserts of as many documents.
func replyOf(events int) ring.Reply {
	r := ring.Reply{Events: make([][]byte, events)}
	for i := range r.Events {
		e := changetest.Event{ID: int64(i), Time: change.Timestamp{T: 1000, I: uint32(i + 1)}}
		r.Events[i] = e.Bytes()
		r.Size += len(r.Events[i])
		r.End = e.Position()
	}
	return r
}

func keepAll(*change.Event) bool { return true }

// BenchmarkSplit walks a reply and sorts it by partition: the work that every event costs a node, wanted or not.
func BenchmarkSplit(b *testing.B) {
	for _, events := range []int{30, 3000} {
		reply := replyOf(events)
		for _, partitions := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("reply=%d/partitions=%d", events, partitions), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					// A splitter drops what it has seen, so each round has one of its own, which is part of what is counted.
					if s, _, err := ring.NewSplitter(partitions, change.Position{}, keepAll).Split(reply); err != nil || len(s.Events) != events {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
			})
		}
	}
}

// The objects of a slot are shared by its events: one more event is none more.
func TestSplittingAllocatesByReplyAndNotByEvent(t *testing.T) {
	allocations := func(events int) float64 {
		reply := replyOf(events)
		return testing.AllocsPerRun(20, func() {
			if s, _, err := ring.NewSplitter(4, change.Position{}, keepAll).Split(reply); err != nil || len(s.Events) != events {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocations(100), allocations(2000); many > few+10 { // buffers of the splitter that grow by doubling
		t.Errorf("%v allocations for 100 events, %v for 2000", few, many)
	}
}
