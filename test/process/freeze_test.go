package process

import (
	"syscall"
	"testing"

	"github.com/mongostream/streamer/fault"
)

// A node that stood still for longer than its claim lives finds that it was replaced: it ends,
// hands out nothing of what happened meanwhile, and moves no mark.
func TestFrozenNodeThatWasReplacedHandsOutNothingMore(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend).with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
			frozen := start(t, launch{args: []string{"run", "-o", "json"}, env: l.with("STREAMER_CLUSTER_LEASE_TTL=3s").settings})
			frozen.await(nodeRuns)
			l.insert(0, 100)
			until(t, "all events are printed", func() bool { return len(frozen.output.all()) == 100 })
			frozen.signal(syscall.SIGSTOP)

			successor := start(t, launch{args: []string{"run", "-o", "json"}, env: l.with("STREAMER_NODE_ID=second").settings})
			successor.await(nodeRuns)
			l.insert(100, 1100)
			last := func() bool {
				seen := map[int64]bool{}
				for _, e := range sightings(t, successor.output.all()) {
					seen[e.document] = e.document >= 100
				}
				return len(seen) >= 1000
			}
			until(t, "the successor delivers", last)
			until(t, "the successor has saved all marks", func() bool {
				stored := l.stored()
				for _, m := range stored {
					if m.By != "second" {
						return false
					}
				}
				return len(stored) == partitions
			})
			before := l.stored()
			frozen.signal(syscall.SIGCONT)
			frozen.refused(fault.NodeTermLost)
			for _, e := range sightings(t, frozen.output.all()) {
				if e.document >= 100 {
					t.Errorf("it has printed %s of %d, which happened after its claim had run out", e.op, e.document)
					break
				}
			}
			for p, m := range l.stored() {
				if m.By != "second" || before[p].Position.After(m.Position) {
					t.Errorf("the mark of partition %d is %s of node %s", p, m.Position, m.By)
				}
			}
			successor.signal(syscall.SIGTERM)
			if code := successor.wait(); code != 0 {
				t.Errorf("exit code %d of the successor", code)
			}
		})
	}
}
