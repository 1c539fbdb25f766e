package lane_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// Of 64 lanes 8 stall for a long time. The others keep their rate, the 8 come back and miss nothing, and the streams stay within
// their budget. Time is the bubble's: a reply takes a millisecond to read, whatever the machine does.
func TestStalledLanesCostTheOthersNothing(t *testing.T) {
	const lanes, stalled, events = 64, 8, 40_000
	var took [2]time.Duration
	for run, stalling := range []int{0, stalled} {
		synctest.Test(t, func(t *testing.T) {
			source := &lanetest.Log{ReplyEvents: 100, Delay: time.Millisecond}
			source.Tick(1)
			all := source.Append(spread(events)...)
			want := countOf(t, lanes, all)
			l, end := beginOf(t, lanes, lane.Config{RingBytes: 1 << 20, PrefetchBytes: 256 << 10, MaxStreams: 3, Patience: time.Second}, source, change.At(all[0].Time))
			defer end()
			begun := time.Now()
			gate := make(chan struct{})
			var healthy, sick sync.WaitGroup
			for p := range change.Partition(lanes) {
				cursor := l.Lane(p, lane.Start{Position: change.At(all[0].Time)})
				read := func(before func()) {
					var last change.Position
					for n := 0; n < want[p]; {
						b, err := cursor.Next(t.Context())
						if err != nil {
							t.Errorf("lane %d after %d of %d events: %v", p, n, want[p], err)
							return
						}
						for i := range b.Len() {
							if at := b.Event(i).Position(); !at.After(last) {
								t.Errorf("lane %d: %v after %v", p, at, last)
							} else {
								last = at.Clone()
							}
						}
						n += b.Len()
						if before != nil {
							before() // with the batch in hand
							before = nil
						}
					}
				}
				if int(p) < stalling {
					sick.Go(func() { read(func() { <-gate }) })
				} else {
					healthy.Go(func() { read(nil) })
				}
			}
			healthy.Wait()
			took[run] = time.Since(begun)
			close(gate)
			sick.Wait()
			if _, most, _ := source.Streams(); most > 3 {
				t.Errorf("%d streams at a time", most)
			}
		})
	}
	if took[1] > took[0]*100/95 {
		t.Errorf("the healthy lanes took %v, and %v beside stalled ones", took[0], took[1])
	}
}

// spread makes events of many documents.
func spread(n int) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i] = changetest.Event{Op: "update", ID: int64(i % 4096)}
	}
	return events
}

// countOf counts the partitions' events.
func countOf(t *testing.T, partitions int, events []changetest.Event) []int {
	t.Helper()
	count := make([]int, partitions)
	for _, ev := range events {
		e, err := change.Parse(ev.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := change.NewPartitioner(partitions).Of(&e)
		count[p]++
	}
	return count
}

// Lanes that take their turns on few processors are at different places of a backlog. As long as they get on, one stream serves them
// all, however fast the foremost is and however few replies the ring holds.
func TestLanesThatGetOnAreNotLeftBehind(t *testing.T) {
	const lanes, events, reply = 8, 8_000, 400
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: reply}
		source.Tick(1)
		all := source.Append(spread(events)...)
		var size int64
		for _, e := range all[:reply] {
			size += int64(len(e.Bytes()))
		}
		source.Stall(true) // until every lane has its place
		l, end := beginOf(t, lanes, lane.Config{RingBytes: 3 * size, PrefetchBytes: size, MaxStreams: 3}, source, change.At(all[0].Time))
		defer end()
		var reading sync.WaitGroup
		for p, want := range countOf(t, lanes, all) {
			cursor := l.Lane(change.Partition(p), lane.Start{Position: change.At(all[0].Time)})
			reading.Go(func() {
				for n := 0; n < want; {
					b, err := cursor.Next(t.Context())
					if err != nil {
						t.Errorf("lane %d after %d of %d events: %v", p, n, want, err)
						return
					}
					n += b.Len()
					time.Sleep(time.Duration(p) * time.Millisecond) // in the bubble: what the work takes
				}
			})
		}
		synctest.Wait()
		source.Stall(false)
		reading.Wait()
		if _, _, opened := source.Streams(); opened != 1 {
			t.Errorf("%d streams were opened for lanes that all get on", opened)
		}
	})
}
