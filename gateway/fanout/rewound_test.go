package fanout_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
)

// An operator moves partitions back one after the other, each to a mark of its own: a session that has yet to read again what the first one
// asks for does not skip it for the second, and nothing comes again that stands before where a partition was moved to.
func TestPartitionsThatAreRewoundToDifferentMarksAllComeAgain(t *testing.T) {
	for _, order := range [][]change.Partition{{0, 1}, {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, fanout.Config{})
			written := w.source.Append(inserts(80, 0)...)
			synctest.Wait()
			s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: change.At(written[0].Time)}, all(t))
			if err != nil {
				t.Fatal(err)
			}
			g := newGateway(t)
			ended := make(chan error, 1)
			go func() { ended <- g.follow(s) }()
			time.Sleep(time.Minute)
			back := map[change.Partition]int{0: 20, 1: 60}
			for _, p := range order {
				w.hub.Rewound(p, written[back[p]-1].Position())
			}
			time.Sleep(time.Minute)
			w.stop()
			if err := <-ended; fault.Of(err) != fault.NodeStopping {
				t.Error(err)
			}
			if len(g.losses) != len(order) {
				t.Fatalf("%d notices", len(g.losses))
			}
			again := slices.DeleteFunc(slices.Clone(written), func(e changetest.Event) bool {
				parsed, _ := change.Parse(e.Bytes())
				p, _ := change.NewPartitioner(partitions).Of(&parsed)
				from, moved := back[p]
				i := slices.IndexFunc(written, func(other changetest.Event) bool { return other.Position().Compare(e.Position()) == 0 })
				return !moved || i < from
			})
			g.expect(slices.Concat(written, again))
			if g.repeated > 0 {
				t.Errorf("%d events came again that stand before where their partitions were moved to", g.repeated)
			}
		})
	}
}
