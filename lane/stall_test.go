package lane_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongostream/change"
	"mongostream/change/changetest"
	"mongostream/lane"
	"mongostream/lane/lanetest"
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
			want := make([]int, lanes)
			for _, ev := range all {
				e, err := change.Parse(ev.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				p, _ := change.NewPartitioner(lanes).Of(&e)
				want[p]++
			}
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
