package etcdtest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A probe counts the time in which the cluster answered without a break, within what is asked for.
func TestProbeCountsWhenTheClusterAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Probe)
		begun := time.Now()
		ask := func(answered bool, times int) {
			for range times {
				time.Sleep(probing)
				p.record(answered)
			}
		}
		ask(true, 31)  // from 0.1 to 3.1 s
		ask(false, 10) // until 4.1 s
		ask(true, 11)  // until 5.2 s: too short
		ask(false, 1)
		ask(true, 41) // from 5.4 to 9.4 s
		time.Sleep(2 * probeGap)
		ask(true, 5) // after a break
		for _, test := range []struct{ from, to, want time.Duration }{
			{0, time.Minute, 7 * time.Second},
			{0, 3 * time.Second, 2900 * time.Millisecond},
			{6400 * time.Millisecond, 9 * time.Second, 2600 * time.Millisecond},
			{8 * time.Second, time.Minute, 0},
			{3200 * time.Millisecond, 5400 * time.Millisecond, 0},
		} {
			if got := p.Answered(begun.Add(test.from), begun.Add(test.to)); got != test.want {
				t.Errorf("from %s to %s the cluster answered for %s, not %s", test.from, test.to, got, test.want)
			}
		}
	})
}
