package leader_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/plan"
)

// What operators wish is planned: a node that is drained loses everything and gets nothing back
// until that is taken back, and a partition that was pinned stays where it was wished after the pin
// has run out.
func TestOperatorsWishesAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 16
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: n, Expected: 3, Settle: 2 * time.Second}})
		defer c.close()
		operator := c.memory.Operator("operator")
		view := func() cluster.View {
			view, err := c.memory.For("operator").View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return view
		}
		has := func(node string) (owned int) {
			for _, o := range view().Owners {
				if o.Node == node {
					owned++
				}
			}
			return owned
		}
		c.start("1", "a", "b", "c")
		c.within(30*time.Second, "everything is served", func() bool { return c.served() == n && has("a") >= 5 })

		if err := operator.Drain(t.Context(), "a", cluster.Drain{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		took := c.within(10*time.Second, "a is empty", func() bool { return has("a") == 0 && c.served() == n })
		t.Logf("drained after %v", took)
		time.Sleep(2 * time.Minute)
		if has("a") != 0 {
			t.Errorf("it has %d partitions again", has("a"))
		}
		if err := operator.Undrain(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		c.within(5*time.Minute, "a has its share again", func() bool { return has("a") >= 5 && c.served() == n })

		p := change.Partition(0)
		for view().Owners[p].Node == "a" {
			p++
		}
		pin := cluster.Pin{To: "a", By: "ann"}
		if err := operator.Pin(t.Context(), p, pin, time.Minute); err != nil {
			t.Fatal(err)
		}
		c.within(20*time.Second, "the partition is where it was wished", func() bool { return view().Owners[p].Node == "a" })
		time.Sleep(5 * time.Minute)
		if now := view(); now.Owners[p].Node != "a" || len(now.Directives.Pinned) != 0 || c.served() != n || has("a") > 6 {
			t.Errorf("partition %d is at %q, pinned %v, a has %d", p, now.Owners[p].Node, now.Directives.Pinned, has("a"))
		}
	})
}
