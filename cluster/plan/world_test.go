package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/notice"
)

// tick is how often the world moves.
const tick = 100 * time.Millisecond

// An actor is a member of the world.
type actor struct {
	node    string
	process int
	kind    cluster.Kind
	joined  int64
	beat    int64
	started time.Duration

	alive    bool // renews its lease
	gone     time.Duration
	silent   bool // sends no heartbeats
	stopping bool
	status   cluster.Status
	failing  []string
	count    int
	garbled  bool
	coverage *change.Coverage
	sinks    []string
	gateways map[string]cluster.Gateway // with sessions at it
	unlisted int

	lame  bool          // claims nothing
	stuck bool          // serves nothing of what it claims
	hoard bool          // gives nothing back
	slow  time.Duration // how long it takes to give one partition back, one after the other
	gave  time.Duration // when it last did

	last    cluster.Heartbeat
	nextAt  time.Duration
	serving map[change.Partition]time.Duration // since when it owns them
	giving  map[change.Partition]time.Duration // since when it is to give them back
}

// A tester is a test, or one run of a property.
type tester interface {
	Error(args ...any)
	Fatalf(format string, args ...any)
}

// A world is a cluster in which time passes in ticks. Everybody in it follows the plan as the real
// ones do, unless told otherwise.
type world struct {
	t          tester
	cfg        plan.Config
	now        time.Duration
	revision   int64
	actors     map[string]*actor
	owners     []cluster.Owner
	plan       cluster.Plan
	rates      map[change.Partition]float64
	capacity   map[string]float64 // of members that say one
	directives cluster.Directives

	state    *plan.Planner
	stepped  int64 // the revision at the last step
	next     time.Duration
	deaf     bool                 // there is no leader
	programs map[string]time.Time // when gateways' processes started
	failures int                  // of publishing, to come

	published func(d plan.Decision, before cluster.Plan)

	lines   []string
	plans   []cluster.Plan
	notices []notice.Notice
	resent  map[int]int // by second
	evicted int
	steps   int
}

func newWorld(t tester, cfg plan.Config) *world {
	if cfg.Node == "" {
		cfg.Node = "node-0"
	}
	return &world{
		t: t, cfg: cfg, now: time.Hour, actors: map[string]*actor{}, owners: make([]cluster.Owner, cfg.Partitions),
		state: plan.New(cfg), rates: map[change.Partition]float64{}, resent: map[int]int{}, programs: map[string]time.Time{},
	}
}

func (w *world) say(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%8.1fs  %s", (w.now-time.Hour).Seconds(), fmt.Sprintf(format, args...)))
}

func (w *world) wrote() int64 {
	w.revision++
	return w.revision
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.actors)) }

// join has a process come up under a name.
func (w *world) join(nodes ...string) {
	for _, node := range nodes {
		a := w.actors[node]
		if a == nil {
			a = &actor{node: node, kind: cluster.KindNode, count: w.cfg.Partitions}
			w.actors[node] = a
		}
		w.drop(a)
		*a = actor{node: node, process: a.process + 1, kind: a.kind, count: a.count, started: w.now, alive: true, joined: w.wrote(),
			status: cluster.StatusHealthy}
		a.serving, a.giving = map[change.Partition]time.Duration{}, map[change.Partition]time.Duration{}
		a.nextAt = w.now
		w.beat(a)
	}
}

// connect has a process of a gateway begin or change a session at a node; its checks that fail are
// given.
func (w *world) connect(node, name, process string, failing ...string) {
	a := w.actors[node]
	if a.gateways == nil {
		a.gateways = map[string]cluster.Gateway{}
	}
	if _, known := w.programs[name+"/"+process]; !known {
		w.programs[name+"/"+process] = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(w.now)
	}
	a.gateways[name] = cluster.Gateway{Name: name, Process: process, StartedAt: w.programs[name+"/"+process], Failing: failing}
}

// leave has a gateway close its session at a node; cut ends it without a word.
func (w *world) leave(node, name string) {
	g := w.actors[node].gateways[name]
	g.Left = true
	w.actors[node].gateways[name] = g
}

func (w *world) cut(node, name string) { delete(w.actors[node].gateways, name) }

// kill has a process end without a word: its lease runs out later.
func (w *world) kill(nodes ...string) {
	for _, node := range nodes {
		if a := w.actors[node]; a != nil && a.alive {
			a.alive, a.gone = false, w.now+10*time.Second
		}
	}
}

// expire ends a member's lease now.
func (w *world) expire(node string) {
	if a := w.actors[node]; a != nil {
		a.alive, a.gone = false, w.now
	}
}

// drop takes away what was under an actor's lease.
func (w *world) drop(a *actor) {
	if a.joined == 0 {
		return
	}
	a.joined, a.alive, a.gone = 0, false, 0
	for p := range w.owners {
		if w.owners[p].Node == a.node {
			w.owners[p] = cluster.Owner{}
		}
	}
	w.wrote()
}

func (w *world) beat(a *actor) {
	h := cluster.Heartbeat{
		Node: a.node, Process: fmt.Sprintf("%s/%d", a.node, a.process), Kind: a.kind, Status: a.status, Count: a.count,
		Coverage: a.coverage, Sinks: a.sinks, Capacity: w.capacity[a.node],
		StartedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(a.started),
	}
	if a.stopping {
		h.Status = cluster.StatusStopping
	}
	for _, check := range []string{cluster.CheckMongoDB, cluster.CheckEtcd, "disk_ok"} {
		if h.Checks == nil {
			h.Checks = map[string]bool{}
		}
		h.Checks[check] = !slices.Contains(a.failing, check)
	}
	for _, p := range slices.Sorted(maps.Keys(a.serving)) {
		if w.now-a.serving[p] >= 300*time.Millisecond && !a.stuck {
			h.Held = append(h.Held, cluster.HeldPartition{Partition: p, Epoch: w.owners[p].Epoch, Rate: w.rates[p]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.gateways)) {
		h.Gateways = append(h.Gateways, a.gateways[name])
	}
	h.Unlisted = a.unlisted
	a.last, a.beat = h, w.wrote()
	a.nextAt = w.now + 2*time.Second
}

// act has one actor do what it does in a tick.
func (w *world) act(a *actor) {
	if a.joined == 0 {
		return
	}
	if !a.alive {
		if w.now >= a.gone {
			w.drop(a)
		}
		return
	}
	for p := range w.owners {
		p := change.Partition(p)
		o, mine := &w.owners[p], w.plan.Owner(p) == a.node
		owned := o.Node == a.node
		if _, serves := a.serving[p]; serves && !owned {
			delete(a.serving, p)
		}
		switch {
		case a.kind == cluster.KindGateway:
		case mine && o.Node == "" && !a.lame && !a.stopping:
			*o = cluster.Owner{Node: a.node, Process: a.last.Process, Epoch: change.Epoch{Incarnation: 1, Revision: uint64(w.wrote())}}
			a.serving[p] = w.now
			delete(a.giving, p)
		case mine || !owned || a.hoard:
			delete(a.giving, p)
		case a.giving[p] == 0:
			a.giving[p] = w.now
		case w.now-a.giving[p] >= 300*time.Millisecond && w.now-max(a.giving[p], a.gave) >= a.slow:
			a.gave = w.now
			*o = cluster.Owner{}
			delete(a.serving, p)
			delete(a.giving, p)
			w.wrote()
		}
	}
	if !a.silent && w.now >= a.nextAt {
		w.beat(a)
	}
	if a.stopping && !slices.ContainsFunc(w.owners, func(o cluster.Owner) bool { return o.Node == a.node }) {
		w.say("(%s ends)", a.node)
		w.drop(a)
	}
}

func (w *world) view() cluster.View {
	v := cluster.View{Revision: w.revision, Owners: slices.Clone(w.owners), Plan: w.plan, Leader: w.cfg.Node, Directives: w.directives}
	for _, name := range w.names() {
		a := w.actors[name]
		if a.joined == 0 {
			continue
		}
		seat := cluster.Member{Heartbeat: a.last, Joined: a.joined, Beat: a.beat}
		if a.garbled {
			seat = cluster.Member{Heartbeat: cluster.Heartbeat{Node: name}, Joined: a.joined, Beat: a.beat, Garbled: fmt.Errorf("no JSON")}
		}
		v.Members = append(v.Members, seat)
	}
	return v
}

// drain has an operator want that a node have nothing.
func (w *world) drain(node string) {
	w.directives.Drained = map[string]cluster.Drain{node: {}}
}

func (w *world) drained(node string) bool {
	_, drained := w.directives.Drained[node]
	return drained
}

// pin has an operator want partitions to be a node's.
func (w *world) pin(node string, partitions ...change.Partition) {
	w.directives.Pinned = make(map[change.Partition]cluster.Pin)
	for _, p := range partitions {
		w.directives.Pinned[p] = cluster.Pin{To: node}
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for until := w.now + d; w.now < until; {
		w.now += tick
		for _, name := range w.names() {
			w.act(w.actors[name])
		}
		if !w.deaf && (w.stepped != w.revision || w.now >= w.next) {
			w.step()
		}
	}
}

// newLeader has another leadership begin.
func (w *world) newLeader(node string) {
	w.cfg.Node = node
	w.state, w.deaf = plan.New(w.cfg), false
	w.next = w.now
	w.say("%s leads", node)
}

func (w *world) step() {
	w.stepped = w.revision
	w.steps++
	d := w.state.Step(w.now, w.view())
	w.next = d.Next
	if d.Next <= w.now {
		w.t.Fatalf("at %s: look again at %s", w.now, d.Next)
	}
	for _, news := range d.News {
		w.say("- %s", news)
	}
	for _, n := range d.Notices {
		if err := notice.Check(n); err != nil {
			w.t.Error(err)
		}
		w.say("! %s %s: %s", n.Kind, n.Level, n.Text)
		w.notices = append(w.notices, n)
	}
	for _, r := range d.Resync {
		w.say("resync %s: %d partitions, %d missing, %d notices", r.Node, len(r.Partitions), r.Missing, len(r.Recent))
		w.resent[int((w.now - time.Hour).Seconds())] += len(r.Partitions)
	}
	switch {
	case d.Publish == nil:
	case w.failures > 0:
		w.failures--
		w.say("plan %d is not published: the store is away", d.Publish.Version)
	default:
		w.publish(d)
	}
	for _, e := range d.Evict {
		o := &w.owners[e.Partition]
		w.say("evict partition %d from %s", e.Partition, o.Node)
		if o.Epoch == e.Epoch {
			*o = cluster.Owner{}
			w.evicted++
			w.wrote()
		}
	}
}

func (w *world) publish(d plan.Decision) {
	if d.Publish.Version != w.plan.Version+1 || len(d.Publish.Owners) != w.cfg.Partitions {
		w.t.Fatalf("plan %d of %d after plan %d", d.Publish.Version, len(d.Publish.Owners), w.plan.Version)
	}
	if w.published != nil {
		w.published(d, w.plan)
	}
	w.plan = *d.Publish
	w.plans = append(w.plans, w.plan)
	w.wrote()
	w.say("plan %d (%s: %s): %d moved, %s", w.plan.Version, d.Replan, w.plan.Cause, d.Moved, ownerCounts(w.plan))
}

// ownerCounts counts what each member has by a plan.
func ownerCounts(p cluster.Plan) string {
	counts := map[string]int{}
	for _, node := range p.Owners {
		counts[node]++
	}
	var texts []string
	for _, node := range slices.Sorted(maps.Keys(counts)) {
		name := node
		if node == "" {
			name = "nobody"
		}
		texts = append(texts, fmt.Sprintf("%s %d", name, counts[node]))
	}
	return strings.Join(texts, ", ")
}

// served says how many partitions are owned by whom the plan gives them to.
func (w *world) served() (n int) {
	for p, o := range w.owners {
		if a := w.actors[o.Node]; a != nil && o.Node == w.plan.Owner(change.Partition(p)) && a.alive && !a.stuck {
			n++
		}
	}
	return n
}
