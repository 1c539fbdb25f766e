package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/plan"
)

// three is a cluster of three that has come to rest.
func three(t *testing.T, partitions int) *world {
	w := newWorld(t, plan.Config{Partitions: partitions, Expected: 3})
	w.join("node-0", "node-1", "node-2")
	w.run(20 * time.Second)
	if w.served() != partitions {
		t.Fatalf("%d of %d are served", w.served(), partitions)
	}
	return w
}

func TestTranscripts(t *testing.T) {
	const s = time.Second
	for name, scenario := range map[string]func(t *testing.T) *world{
		"cold-start": func(t *testing.T) *world {
			w := newWorld(t, plan.Config{Partitions: 12, Expected: 3})
			w.join("node-0")
			w.run(2 * s)
			w.join("node-1")
			w.run(3 * s)
			w.join("node-2")
			w.run(10 * s)
			return w
		},
		"cold-start-without-one": func(t *testing.T) *world {
			w := newWorld(t, plan.Config{Partitions: 12, Expected: 3})
			w.join("node-0", "node-1")
			w.run(20 * s)
			w.join("node-2")
			w.run(30 * s)
			return w
		},
		"cold-start-with-a-plan": func(t *testing.T) *world { // the whole cluster was off: who comes back gets what it had
			w := three(t, 12)
			w.deaf = true
			for _, n := range w.names() {
				w.expire(n)
			}
			w.run(2 * s)
			before := w.plan
			w.now += time.Hour
			w.join("node-1")
			w.newLeader("node-1")
			w.run(3 * s)
			w.join("node-0")
			w.run(3 * s)
			w.join("node-2")
			w.run(20 * s)
			if diff := cmp.Diff(before.Owners, w.plan.Owners); diff != "" {
				t.Error(diff)
			}
			return w
		},
		"join": func(t *testing.T) *world {
			w := three(t, 64)
			w.join("node-3")
			w.run(6 * s)
			w.join("node-4")
			w.run(60 * s)
			return w
		},
		"crash": func(t *testing.T) *world { // emergency, return, settling, and everything as before
			w := three(t, 12)
			before := w.plan
			w.kill("node-1")
			w.run(12 * s)
			w.join("node-1")
			w.run(40 * s)
			if diff := cmp.Diff(before.Owners, w.plan.Owners); diff != "" {
				t.Error(diff)
			}
			return w
		},
		"several-crashes": func(t *testing.T) *world {
			w := newWorld(t, plan.Config{Partitions: 30, Expected: 6})
			w.join("node-0", "node-1", "node-2", "node-3", "node-4", "node-5")
			w.run(20 * s)
			w.kill("node-1", "node-3", "node-5")
			w.run(12 * s)
			w.join("node-1")
			w.run(2 * s)
			w.join("node-3")
			w.run(2 * s)
			w.join("node-5")
			w.run(60 * s)
			return w
		},
		"leader-crash": func(t *testing.T) *world {
			w := three(t, 12)
			w.kill("node-0")
			w.deaf = true
			w.run(11 * s)
			w.newLeader("node-1")
			w.run(20 * s)
			return w
		},
		"leader-change": func(t *testing.T) *world { // nothing moves
			w := three(t, 12)
			w.newLeader("node-2")
			w.run(120 * s)
			return w
		},
		"crash-during-rebalance": func(t *testing.T) *world {
			w := three(t, 64)
			w.join("node-3")
			w.run(10500 * time.Millisecond)
			w.expire("node-3")
			w.expire("node-2")
			w.run(60 * s)
			return w
		},
		"planned-leave": func(t *testing.T) *world {
			w := three(t, 12)
			w.actors["node-2"].stopping = true
			w.run(10 * s)
			w.join("node-2")
			w.run(30 * s)
			return w
		},
		"drained": func(t *testing.T) *world {
			w := three(t, 12)
			w.drain("node-2")
			w.run(10 * s)
			w.directives = cluster.Directives{}
			w.pin("node-2", 0, 1)
			w.run(30 * s)
			return w
		},
		"restart": func(t *testing.T) *world { // so quickly that its seat is never seen empty
			w := three(t, 12)
			w.join("node-1")
			w.run(20 * s)
			return w
		},
		"restart-that-serves-nothing": func(t *testing.T) *world {
			w := three(t, 12)
			w.join("node-1")
			w.actors["node-1"].lame = true
			w.run(8 * s)
			w.actors["node-1"].lame = false
			w.run(20 * s)
			return w
		},
		"gateway-restart": func(t *testing.T) *world {
			w := three(t, 12)
			w.connect("node-2", "orders", "1")
			w.kill("node-1")
			w.run(20 * s)
			w.connect("node-2", "orders", "2")
			w.run(10 * s)
			return w
		},
		"gateway-degraded": func(t *testing.T) *world { // its own checks fail, some of which are called like a node's
			w := three(t, 12)
			w.connect("node-2", "orders", "1")
			w.connect("node-0", "node-1", "1")
			w.run(6 * s)
			w.connect("node-2", "orders", "1", "cache", "mongodb_ok", "status")
			w.connect("node-0", "node-1", "1", "mongodb_ok\x1b[2J")
			w.run(20 * s)
			w.connect("node-2", "orders", "1")
			w.run(6 * s)
			return w
		},
		"gateway-dead": func(t *testing.T) *world { // called like a node, which nobody mistakes it for
			w := three(t, 12)
			w.connect("node-2", "node-1", "1")
			w.run(6 * s)
			w.cut("node-2", "node-1")
			w.run(20 * s)
			w.connect("node-0", "node-1", "2")
			w.run(10 * s)
			return w
		},
		"gateway-leaves": func(t *testing.T) *world { // and comes again
			w := three(t, 12)
			w.connect("node-2", "orders", "1")
			w.run(6 * s)
			w.leave("node-2", "orders")
			w.run(10 * s)
			w.cut("node-2", "orders")
			w.run(30 * s)
			w.connect("node-1", "orders", "2")
			w.run(10 * s)
			return w
		},
		"gateway-of-several-nodes": func(t *testing.T) *world { // and of a node that dies: it is one member, and lives
			w := three(t, 12)
			w.connect("node-1", "orders", "1")
			w.connect("node-2", "orders", "1")
			w.connect("node-1", "stock", "1")
			w.run(6 * s)
			w.leave("node-2", "orders")
			w.run(10 * s)
			w.cut("node-2", "orders")
			w.run(10 * s)
			w.kill("node-1")
			w.connect("node-0", "orders", "1")
			w.run(30 * s)
			return w
		},
		"gateways-beyond-the-list": func(t *testing.T) *world { // one that is in no list may be among them
			w := three(t, 12)
			w.connect("node-2", "orders", "1")
			w.run(6 * s)
			w.actors["node-1"].unlisted = 1
			w.run(6 * s)
			w.cut("node-2", "orders")
			w.run(30 * s)
			w.connect("node-2", "orders", "2")
			w.run(10 * s)
			return w
		},
		"no-primary": func(t *testing.T) *world { // for 20 s, seen and over at different moments
			w := three(t, 12)
			plans := len(w.plans)
			for _, n := range w.names() {
				w.actors[n].failing, w.actors[n].status = []string{cluster.CheckMongoDB}, cluster.StatusUnhealthy
				w.run(1500 * time.Millisecond)
			}
			w.run(16 * s)
			for _, n := range w.names() {
				w.actors[n].failing, w.actors[n].status = nil, cluster.StatusHealthy
				w.run(1500 * time.Millisecond)
			}
			w.run(60 * s)
			if len(w.plans) != plans {
				t.Errorf("%d plans were made", len(w.plans)-plans)
			}
			return w
		},
		"no-primary-slow-return": func(t *testing.T) *world { // one finds it half a minute later than the others, which is no reason to move
			w := three(t, 12)
			plans := len(w.plans)
			for _, n := range w.names() {
				w.actors[n].failing, w.actors[n].status = []string{cluster.CheckMongoDB}, cluster.StatusDegraded
			}
			w.run(20 * s)
			for _, n := range w.names() {
				w.actors[n].failing, w.actors[n].status = nil, cluster.StatusHealthy
				w.run(15 * s)
			}
			w.run(60 * s)
			if len(w.plans) != plans {
				t.Errorf("%d plans were made", len(w.plans)-plans)
			}
			return w
		},
		"no-primary-no-return": func(t *testing.T) *world { // one does not find it again
			w := three(t, 12)
			for _, n := range w.names() {
				w.actors[n].failing, w.actors[n].status = []string{cluster.CheckMongoDB}, cluster.StatusDegraded
			}
			w.run(20 * s)
			for _, n := range w.names()[:2] {
				w.actors[n].failing, w.actors[n].status = nil, cluster.StatusHealthy
			}
			w.run(90 * s)
			return w
		},
		"unhealthy": func(t *testing.T) *world {
			w := three(t, 12)
			w.actors["node-1"].failing = []string{cluster.CheckMongoDB}
			w.run(20 * s)
			w.actors["node-1"].failing = nil
			w.run(40 * s)
			return w
		},
		"degraded": func(t *testing.T) *world { // keeps what it has, and gets nothing of what is dead
			w := three(t, 12)
			w.actors["node-1"].failing = []string{"disk_ok"}
			w.run(5 * s)
			w.expire("node-2")
			w.run(10 * s)
			w.actors["node-1"].failing = nil
			w.run(30 * s)
			return w
		},
		"silent": func(t *testing.T) *world { // its lease lives and nothing is heard of it
			w := three(t, 12)
			w.actors["node-1"].silent, w.actors["node-1"].hoard = true, true
			w.run(20 * s)
			w.actors["node-1"].silent, w.actors["node-1"].hoard = false, false
			w.run(40 * s)
			return w
		},
		"stuck-owner": func(t *testing.T) *world { // claims and does not serve: breaker opens, is half-open, closes
			w := three(t, 12)
			w.actors["node-1"].stuck = true
			w.run(40 * s)
			w.actors["node-1"].stuck = false
			w.run(120 * s)
			return w
		},
		"hoarding-owner": func(t *testing.T) *world { // does not give up what the plan takes from it: that serves nobody worse
			w := newWorld(t, plan.Config{Partitions: 8, Expected: 2})
			w.join("node-0", "node-1")
			w.run(20 * s)
			w.actors["node-1"].hoard = true
			w.join("node-2")
			w.run(120 * s)
			return w
		},
		"hoarding-drained-owner": func(t *testing.T) *world { // it has to
			w := three(t, 12)
			w.drain("node-1")
			w.actors["node-1"].hoard = true
			w.run(40 * s)
			return w
		},
		"flapping": func(t *testing.T) *world { // a member that comes and goes is given less and less of a chance
			w := three(t, 12)
			for range 12 {
				w.expire("node-2")
				w.run(3 * s)
				w.join("node-2")
				w.run(27 * s)
			}
			w.run(300 * s)
			return w
		},
		"lame-member": func(t *testing.T) *world { // never claims: breaker opens and stays so
			w := three(t, 12)
			w.join("node-3")
			w.actors["node-3"].lame = true
			w.run(240 * s)
			w.actors["node-3"].lame = false
			w.run(240 * s)
			return w
		},
		"bad-members": func(t *testing.T) *world {
			w := three(t, 12)
			w.actors["node-3"] = &actor{node: "node-3", kind: cluster.KindNode, count: 24}
			w.join("node-3", "node-4")
			w.actors["node-4"].garbled = true
			w.actors["node-1"].garbled = true
			w.run(60 * s)
			w.actors["node-1"].garbled = false
			w.run(60 * s)
			return w
		},
		"publishing-fails": func(t *testing.T) *world {
			w := three(t, 12)
			w.failures = 3
			w.kill("node-1")
			w.run(20 * s)
			return w
		},
		"blind-leader": func(t *testing.T) *world { // the leader did not look for a minute: nobody is dead for that
			w := three(t, 12)
			w.now += time.Minute
			w.run(30 * s)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := scenario(t)
			clustertest.CompareTranscript(t, name, strings.Join(w.lines, "\n")+"\n")
			for p, o := range w.owners {
				if a := w.actors[o.Node]; a == nil || !a.alive || a.stuck {
					t.Errorf("partition %d is not served at the end", p)
				}
			}
		})
	}
}
