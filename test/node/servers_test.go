package node

import (
	"fmt"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// The post-batch tokens of MongoDB 9.0 may go back after a stream was resumed, and may be those of
// control events, which cannot be resumed. Streams that break again and again, and a node that is
// stopped, go on at the time of such a token: every change comes once, and nothing is a loss
// unless that time has left the log.
func TestPostBatchTokensThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	for _, refusal := range []int{260, 280} {
		for _, over := range transports() {
			t.Run(fmt.Sprintf("%d/%s", refusal, over.name), func(t *testing.T) {
				t.Parallel()
				w := newStage(t, over, devmongo.Config{Release: "9.0", Adjust: func(p *devmongo.Profile) {
					p.ControlTokens = refusal
				}}, "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=30s", "STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=10s")
				var want []string
				for round := range 4 {
					want = append(want, w.series(10*round, 10*round+5)...)
					w.sees(want...)
					w.elsewhere(3)
					at := w.server.ClusterTime()
					w.until("the stream is at the token of a control event", func() bool {
						end := w.node.service.Log().Stats().End
						return uint64(end.Time.T)<<32|uint64(end.Time.I) >= at && !end.IsProgress()
					})
					switch round {
					case 0:
						w.fail(times(1), 43, "getMore")
					case 1: // right after it was resumed, too
						w.fail(times(4), 43, "getMore")
					case 2:
						w.node.stopped()
						w.start()
					}
					want = append(want, w.series(10*round+5, 10*round+10)...)
					w.sees(want...)
				}
				w.once(t, want...)
				if n := len(w.losses()); n > 0 {
					t.Errorf("%d losses are told: %s", n, w.ledger)
				}
				w.node.stopped()
				w.insert("lost")
				w.elsewhere(5)
				w.server.TruncateOplog(2) // the token's time has left the log
				w.start()
				w.until("the loss is told", func() bool { return len(w.losses()) > 0 })
				w.insert("kept")
				w.sees("kept")
			})
		}
	}
}
