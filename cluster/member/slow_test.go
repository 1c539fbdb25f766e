package member_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A node that is detached ends its terms at once, whatever is under way: also where somebody is
// slow to leave off taking more.
func TestTermsEndWhileWhatIsUnderWayTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		memory := clustertest.NewMemory(2, nil)
		leader, err := memory.For("leader").Campaign(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		plan := func(version uint64, owners ...string) {
			if err := leader.Publish(t.Context(), cluster.Plan{Version: version, Owners: owners}); err != nil {
				t.Fatal(err)
			}
		}
		plan(1, "a", "")
		var first change.Term
		var late time.Duration // how long the first term has lived after the node knew that it was to end
		s := member.New(member.Config{
			Member: cluster.Identity{Node: "a", Process: "p"}, Clock: func() time.Duration { return time.Since(began) },
			Resume: func(ctx context.Context, terms []change.Term) error {
				if terms[0].Partition == 0 {
					first = terms[0]
					return nil
				}
				<-ctx.Done()
				left := time.Now()
				time.Sleep(3 * time.Second)
				if first.Context.Err() == nil {
					late = time.Since(left)
				}
				return ctx.Err()
			},
			Offer: func([]change.Term) {},
		}, memory.For("a"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Second)
		plan(2, "a", "a")
		time.Sleep(500 * time.Millisecond)
		memory.Cut("a", true)
		time.Sleep(15 * time.Second)
		memory.Cut("a", false)
		if first.Context == nil || late > 0 {
			t.Errorf("its term has lived for %s longer", late)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
