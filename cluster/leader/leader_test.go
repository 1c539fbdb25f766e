package leader_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

const ttl = 3 * time.Second

// A node is a member with its share, and a leader that may be elected.
type node struct {
	name   string
	share  *member.Member
	leader *leader.Leader
	board  *notice.Board
	reg    *prometheus.Registry
	stop   context.CancelFunc
	done   sync.WaitGroup
	wary   atomic.Bool // does not trust itself to lead

	mu struct {
		sync.Mutex

		terms []change.Term
	}
}

// A cluster is nodes over one store.
type nodes struct {
	t      *testing.T
	memory *clustertest.Memory
	all    map[string]*node
	cfg    leader.Config
}

func newNodes(t *testing.T, cfg leader.Config) *nodes {
	m := clustertest.NewMemory(cfg.Partitions, nil)
	m.SetElectionTTL(ttl)
	return &nodes{t: t, memory: m, all: map[string]*node{}, cfg: cfg}
}

// start starts nodes.
func (c *nodes) start(process string, names ...string) {
	for _, name := range names {
		ctx, stop := context.WithCancel(c.t.Context())
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) }
		n := &node{name: name, stop: stop, board: notice.NewBoard(notice.Config{Node: name}), reg: prometheus.NewRegistry()}
		store := c.memory.For(name)
		n.share = member.New(member.Config{
			Member: cluster.Identity{Node: name, Process: name + "/" + process}, TTL: ttl, Clock: clock,
			Report: n.report, Resume: n.resume, Offer: n.release,
		}, store)
		cfg := c.cfg
		cfg.Node, cfg.TTL, cfg.Clock, cfg.Board, cfg.Registerer = name, ttl, clock, n.board, n.reg
		cfg.Trusted = func() bool { return n.share.Trusted() && n.share.Sees() == nil && !n.wary.Load() }
		n.leader = leader.New(cfg, store)
		n.done.Go(func() {
			_ = n.share.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		})
		n.done.Go(func() {
			if err := n.leader.Run(ctx); err != nil {
				c.t.Error(err)
			}
		})
		c.all[name] = n
	}
}

func (n *node) report() cluster.Heartbeat {
	n.mu.Lock()
	defer n.mu.Unlock()
	etcd := n.share.Sees() == nil
	h := cluster.Heartbeat{Status: cluster.StatusHealthy, Checks: map[string]bool{cluster.CheckMongoDB: true, cluster.CheckEtcd: etcd}}
	for _, term := range n.mu.terms {
		if term.Err() == nil {
			h.Held = append(h.Held, cluster.HeldPartition{Partition: term.Partition, Epoch: term.Epoch, Rate: 1})
		}
	}
	return h
}

func (n *node) resume(_ context.Context, terms []change.Term) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.terms = append(n.mu.terms, terms...)
	for _, term := range terms {
		context.AfterFunc(term.Context, func() { n.share.Return(term) })
	}
	return nil
}

func (n *node) release(terms []change.Term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, term := range terms {
		n.mu.terms = slices.DeleteFunc(n.mu.terms, func(t change.Term) bool { return t.Partition == term.Partition && t.Epoch == term.Epoch })
		n.share.Return(term)
	}
}

// shut stops nodes in an orderly way.
func (c *nodes) shut(names ...string) {
	for _, name := range names {
		c.all[name].stop()
		c.all[name].done.Wait()
		delete(c.all, name)
	}
}

func (c *nodes) close() {
	for name := range c.all {
		c.shut(name)
	}
}

// leads returns the nodes that believe to lead.
func (c *nodes) leads() (names []string) {
	for name, n := range c.all {
		if n.leader.Explain().Leading {
			names = append(names, name)
		}
	}
	return names
}

// served counts the partitions that somebody has a living term of.
func (c *nodes) served() int {
	served := map[change.Partition]bool{}
	for _, n := range c.all {
		n.mu.Lock()
		for _, term := range n.mu.terms {
			if term.Err() == nil {
				served[term.Partition] = true
			}
		}
		n.mu.Unlock()
	}
	return len(served)
}

// within waits until that is so, and returns how long it took.
func (c *nodes) within(d time.Duration, what string, so func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !so() {
		if time.Since(began) > d {
			c.t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}

func (c *nodes) settled() bool { return c.served() == c.cfg.Partitions && len(c.leads()) == 1 }

func TestClusterIsGoverned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 24, Expected: 3}})
		defer c.close()
		c.start("a", "node-0", "node-1", "node-2")
		c.within(5*time.Second, "the cold start", c.settled)
		time.Sleep(10 * time.Second)
		leader := c.leads()[0]
		plan := c.all[leader].leader.Explain().Plan
		if plan.Version != 1 || plan.By != leader || plan.At.IsZero() || plan.Reason(0) == "" {
			t.Errorf("%+v", plan)
		}

		victim := "node-0"
		if victim == leader {
			victim = "node-1"
		}
		c.memory.Cut(victim, true)
		gone := c.all[victim]
		delete(c.all, victim)
		c.within(ttl+2*time.Second, "an owner is replaced", c.settled)
		c.memory.Cut(leader, true)
		dead := c.all[leader]
		delete(c.all, leader)
		c.within(2*ttl+3*time.Second, "the leader is replaced", c.settled)

		for _, n := range []*node{gone, dead} {
			c.memory.Cut(n.name, false)
			c.all[n.name] = n
		}
		c.within(30*time.Second, "both are back with their share", func() bool {
			for _, n := range c.all {
				if len(n.report().Held) != 8 {
					return false
				}
			}
			return c.settled()
		})
	})
}

func TestLeaderThatIsCutOffResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 6, Expected: 2}})
		defer c.close()
		c.start("a", "node-0", "node-1")
		c.within(5*time.Second, "the cold start", c.settled)
		leader := c.leads()[0]
		c.all[leader].wary.Store(true)
		c.within(5*time.Second, "the other leads", func() bool { l := c.leads(); return len(l) == 1 && l[0] != leader })
		c.all[leader].wary.Store(false)
		time.Sleep(30 * time.Second)
		if version := c.all[c.leads()[0]].leader.Explain().Plan.Version; version != 1 {
			t.Errorf("plan %d: another leader has moved partitions", version)
		}
	})
}

// A node that renews its lease and cannot read the cluster would keep what it has for ever, or lead
// for ever without a look. It is detached, others lead, and get what it had. Where the cluster is
// corrupt, for all nodes, nothing moves.
func TestNodeThatCannotReadTheClusterLosesWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 12, Expected: 3}})
		defer c.close()
		c.start("a", "node-0", "node-1", "node-2")
		c.within(5*time.Second, "the cold start", c.settled)
		owned := func(name string) (n int) {
			view, err := c.memory.For("watcher").View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range view.Owners {
				if o.Node == name {
					n++
				}
			}
			return n
		}
		blind := c.leads()[0]
		c.memory.Blind(blind, clustertest.ErrCut)
		took := c.within(3*ttl, "another node leads", func() bool { return !slices.Contains(c.leads(), blind) && len(c.leads()) == 1 })
		t.Logf("another node leads after %s", took)
		c.within(3*ttl, "it is detached", func() bool { return !c.all[blind].share.Trusted() })
		c.within(30*time.Second, "it owns nothing", func() bool { return owned(blind) == 0 })
		c.memory.Blind(blind, nil)
		c.within(5*time.Minute, "it has its share again", func() bool { return owned(blind) == 4 && c.settled() })

		before := c.all[c.leads()[0]].leader.Explain().Plan.Version
		for name := range c.all {
			c.memory.Blind(name, fault.Newf(fault.ClusterCorrupt, "the plan"))
		}
		time.Sleep(5 * time.Minute)
		for name := range c.all {
			if n := owned(name); n != 4 {
				t.Errorf("%s owns %d partitions while nobody can read the cluster", name, n)
			}
			c.memory.Blind(name, nil)
		}
		c.within(10*time.Second, "somebody leads again", func() bool { return len(c.leads()) == 1 })
		time.Sleep(20 * time.Second)
		if plan := c.all[c.leads()[0]].leader.Explain().Plan; plan.Version != before {
			t.Errorf("plan %d after %d: %s", plan.Version, before, plan.Cause)
		}
	})
}

func TestLeaderGoesOnAfterTheStoreWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 6, Expected: 2}})
		defer c.close()
		c.start("a", "node-0", "node-1")
		c.within(5*time.Second, "the cold start", c.settled)
		for name := range c.all {
			c.memory.Cut(name, true)
		}
		time.Sleep(time.Second) // less than any lease
		for name := range c.all {
			c.memory.Cut(name, false)
		}
		time.Sleep(20 * time.Second)
		if e := c.all[c.leads()[0]].leader.Explain(); e.Plan.Version != 1 || !c.settled() {
			t.Errorf("plan %d, %d served", e.Plan.Version, c.served())
		}
		for name := range c.all { // and for longer than all of them
			c.memory.Cut(name, true)
		}
		time.Sleep(5 * time.Minute)
		if n := c.served(); n != 0 {
			t.Errorf("%d partitions are served while the store is away", n)
		}
		for name := range c.all {
			c.memory.Cut(name, false)
		}
		c.within(4*time.Second, "everything is owned again", func() bool { return c.served() == 6 })
	})
}

func TestLostAnswerToAPlanIsNoOtherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 6, Expected: 3}})
		defer c.close()
		c.start("a", "node-0", "node-1", "node-2")
		c.within(5*time.Second, "the cold start", c.settled)
		leader := c.leads()[0]
		other := "node-0"
		if other == leader {
			other = "node-1"
		}
		c.shut(other)
		c.memory.Mute(leader)
		c.within(10*time.Second, "the others serve everything", c.settled)
		time.Sleep(10 * time.Second)
		if e := c.all[leader].leader.Explain(); e.Plan.Version != 2 {
			t.Errorf("plan %d", e.Plan.Version)
		}
	})
}

func TestLeaderTellsOnTheBoardAndInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, leader.Config{Config: plan.Config{Partitions: 6, Expected: 3}})
		defer c.close()
		c.start("a", "node-0", "node-1", "node-2")
		c.within(5*time.Second, "the cold start", c.settled)
		leader := c.leads()[0]
		other := "node-0"
		if other == leader {
			other = "node-1"
		}
		c.memory.Cut(other, true)
		time.Sleep(ttl + time.Second)
		dead := c.all[other]
		dead.stop()
		dead.done.Wait()
		c.memory.Cut(other, false)
		c.start("b", other)
		time.Sleep(40 * time.Second)

		told := map[string]int{}
		notices, _ := c.all[leader].board.Since(0)
		for _, n := range notices {
			if err := notice.Check(n); err != nil {
				t.Error(err)
			}
			told[n.Kind]++
			heard, _ := n.Fields["last_heartbeat"].(string)
			if at, err := time.Parse(time.RFC3339, heard); n.Kind == notice.KindDead && (err != nil || n.At.Sub(at) <= 0 || n.At.Sub(at) > 2*ttl) {
				t.Errorf("%s was heard last %v, %v", n.Fields["member"], heard, err)
			}
		}
		if told[notice.KindDead] != 1 || told[notice.KindRestarted] != 1 || told[notice.KindResyncComplete] != 1 || told[notice.KindMoved] < 2 {
			t.Errorf("told %v", told)
		}
		figures := gather(t, c.all[leader].reg)
		for name, want := range map[string]float64{
			"streamer_cluster_is_leader": 1, "streamer_cluster_members/healthy": 3, "streamer_cluster_members/dead": 0,
			"streamer_cluster_replans_total/cold_start": 1, "streamer_cluster_replans_total/emergency": 1,
			"streamer_cluster_assignment_breakers/closed": 3,
		} {
			if got, there := figures[name]; !there || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if figures["streamer_cluster_moves_total"] < 4 || figures["streamer_cluster_plan_version"] < 3 {
			t.Errorf("%v", figures)
		}
		if follower := gather(t, c.all[other].reg); follower["streamer_cluster_is_leader"] != 0 {
			t.Error("a follower says that it leads")
		}
	})
}

// gather returns counters and gauges by name and label.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				name.WriteString("/" + l.GetValue())
			}
			figures[name.String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return figures
}
