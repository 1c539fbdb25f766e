package member_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/leaktest"
)

// moment is how long a node takes to come to an end with something.
const moment = time.Millisecond

// A troupe is some nodes of a cluster of four partitions, and a leader that plans what the scene
// says.
type troupe struct {
	*clustertest.Transcript

	t      *testing.T
	memory *clustertest.Memory
	leader cluster.Leadership
	plans  uint64
	nodes  sync.WaitGroup
}

// An actor is one process of a node.
type actor struct {
	troupe *troupe
	name   string
	share  *member.Member
	stop   context.CancelFunc
	slow   time.Duration // how long it takes to come to an end with a term
	to     string        // the process of node b to which it hands terms over, none: it gives them back

	mu struct {
		sync.Mutex
		suspended time.Duration
		terms     map[change.Partition]change.Term
	}
}

// play plays a scene of a minute at most, with a clock that begins at zero.
func play(t *testing.T, scene func(tr *troupe)) string {
	tr := &troupe{}
	synctest.Test(t, func(t *testing.T) {
		tr.t, tr.Transcript = t, clustertest.BeginTranscript()
		tr.memory = clustertest.NewMemory(4, nil)
		var err error
		if tr.leader, err = tr.memory.For("leader").Campaign(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}
		scene(tr)
		tr.nodes.Wait()
	})
	tr.Sort(speaker)
	return tr.String()
}

// speaker returns whom a line is about, empty for the scene.
func speaker(text string) string {
	if _, of, found := strings.Cut(text, " of="); found {
		return of[:1]
	}
	if name, _, found := strings.Cut(text, ": "); found && len(name) == 1 {
		return name
	}
	return ""
}

// plan publishes who should own the partitions.
func (tr *troupe) plan(owners ...string) {
	tr.plans++
	tr.Say("the plan: %s", strings.Join(owners, " "))
	if err := tr.leader.Publish(tr.t.Context(), cluster.Plan{Version: tr.plans, Owners: owners}); err != nil {
		tr.t.Error(err)
	}
}

// enter starts a process of a node.
func (tr *troupe) enter(node, process string) *actor {
	a := &actor{troupe: tr, name: node}
	a.mu.terms = make(map[change.Partition]change.Term)
	ctx, stop := context.WithCancel(tr.t.Context())
	a.stop = func() {
		tr.Say("%s is asked to stop", node)
		stop()
	}
	a.share = member.New(member.Config{
		Member: cluster.Identity{Node: node, Process: process}, TTL: 9 * time.Second, Clock: a.clock, Log: tr.Logger().With("of", node),
		Resume: a.resume, Offer: a.release,
		Detached: func(error) { tr.Say("%s: detached", node) }, Attached: func() { tr.Say("%s: attached", node) },
	}, tr.memory.For(node))
	tr.nodes.Go(func() {
		err := a.share.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(moment)
			return nil
		})
		tr.Say("%s: run: %v %s", node, err, fault.Of(err))
		stop()
	})
	return a
}

func (a *actor) clock() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.troupe.Now() + a.mu.suspended
}

// suspend lets the process stand still, as far as its clock goes. Its lease is over when the scene
// says so.
func (a *actor) suspend(d time.Duration) {
	a.troupe.Say("%s stands still for %s", a.name, d)
	a.mu.Lock()
	a.mu.suspended += d
	a.mu.Unlock()
}

func (a *actor) resume(_ context.Context, terms []change.Term) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, term := range terms {
		a.mu.terms[term.Partition] = term
		a.troupe.nodes.Go(func() { // what a consumer does whose term ends
			<-term.Context.Done()
			time.Sleep(moment)
			a.over(term)
		})
	}
	a.troupe.Say("%s: serves %s", a.name, listed(terms))
	return nil
}

func (a *actor) release(terms []change.Term) {
	a.troupe.Say("%s: is to give up %s", a.name, listed(terms))
	a.troupe.nodes.Go(func() {
		time.Sleep(moment + a.slow)
		if a.to != "" {
			seat := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "b", Process: a.to}}
			handed, err := a.share.Transfer(a.troupe.t.Context(), seat, terms)
			a.troupe.Say("%s: handed over %d of %d: %v", a.name, handed, len(terms), err)
		}
		for _, term := range terms {
			a.over(term)
		}
	})
}

func (a *actor) over(term change.Term) {
	a.mu.Lock()
	if a.mu.terms[term.Partition].Epoch == term.Epoch {
		delete(a.mu.terms, term.Partition)
	}
	a.mu.Unlock()
	a.share.Return(term)
}

// tell says what a node serves, and whether it may.
func (a *actor) tell() {
	a.mu.Lock()
	terms := slices.Collect(maps.Values(a.mu.terms))
	a.mu.Unlock()
	terms = slices.DeleteFunc(terms, func(term change.Term) bool { return term.Err() != nil })
	a.troupe.Say("%s: trusted %t, renewed %t, owns %s", a.name, a.share.Trusted(), a.share.Renewed(), listed(terms))
	if err := a.share.Sees(); err != nil {
		a.troupe.Say("%s: %v", a.name, err)
	}
}

func listed(terms []change.Term) string {
	var names []string
	for _, term := range terms {
		names = append(names, fmt.Sprintf("%d", term.Partition))
	}
	slices.Sort(names)
	return "[" + strings.Join(names, " ") + "]"
}

func TestMain(m *testing.M) { leaktest.Main(m) }

// blind is what becomes of a node that is a member and renews its lease, while it cannot read the
// cluster.
func blind(said string, why error) func(*troupe) {
	return func(tr *troupe) {
		a := tr.enter("a", "p1")
		tr.plan("a", "a", "a", "b")
		time.Sleep(1100 * time.Millisecond) // between the moments at which the node asks
		tr.memory.Blind("a", why)
		tr.Say("%s", said)
		tr.plan("a", "b", "b", "b")
		time.Sleep(5 * time.Second)
		a.tell()
		time.Sleep(5 * time.Minute)
		a.tell()
		tr.memory.Blind("a", nil)
		tr.Say("a can read the cluster again")
		time.Sleep(3 * time.Second)
		a.tell()
		a.stop()
	}
}

func TestTranscripts(t *testing.T) {
	scenes := map[string]func(tr *troupe){
		"moves": func(tr *troupe) {
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			time.Sleep(time.Second)
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.plan("a", "b", "a", "a")
			time.Sleep(time.Second)
			a.tell()
			b.tell()
			a.stop()
			time.Sleep(time.Second)
			tr.plan("b", "b", "b", "b")
			time.Sleep(time.Second)
			b.tell()
			b.stop()
		},
		"handed-over": func(tr *troupe) { // the other has it at once; who is gone has nothing, and the other claims it
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			time.Sleep(time.Second)
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			a.to = "p2"
			tr.plan("a", "b", "b", "a")
			time.Sleep(time.Second)
			a.tell()
			b.tell()
			a.to = "before"
			tr.plan("b", "b", "b", "a")
			time.Sleep(time.Second)
			a.tell()
			b.tell()
			a.stop()
			b.stop()
		},
		"claims-fail": func(tr *troupe) { // and nothing else: the lease is renewed and the cluster read, so nobody is detached
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			tr.plan("a", "a", "b", "b")
			time.Sleep(time.Second)
			tr.memory.RefuseClaims("b", clustertest.ErrCut)
			tr.Say("claims of b fail")
			tr.plan("a", "b", "b", "b")
			time.Sleep(15 * time.Second)
			a.tell()
			b.tell()
			tr.plan("a", "a", "b", "b") // the leader has seen that nobody serves it
			time.Sleep(2 * time.Second)
			a.tell()
			b.tell()
			tr.plan("a", "b", "b", "b")
			time.Sleep(time.Second)
			tr.memory.RefuseClaims("b", nil)
			tr.Say("claims of b succeed again")
			time.Sleep(3 * time.Second)
			a.tell()
			b.tell()
			a.stop()
			b.stop()
		},
		"cut": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.memory.Cut("a", true)
			tr.Say("a is cut off")
			time.Sleep(5500 * time.Millisecond)
			a.tell()
			time.Sleep(time.Second)
			a.tell()
			time.Sleep(5100 * time.Millisecond)
			tr.memory.Cut("a", false)
			tr.Say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"cut-shortly": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.memory.Cut("a", true)
			tr.Say("a is cut off")
			time.Sleep(4 * time.Second)
			tr.memory.Cut("a", false)
			tr.Say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"blind":   blind("a cannot read the cluster", clustertest.ErrCut),
		"corrupt": blind("the cluster is corrupt", fault.Newf(fault.ClusterCorrupt, "the plan")),
		"flaps": func(tr *troupe) { // answers now and then are no recovery
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.memory.Cut("a", true)
			time.Sleep(9900 * time.Millisecond)
			for range 8 {
				tr.memory.Cut("a", false)
				time.Sleep(200 * time.Millisecond)
				tr.memory.Cut("a", true)
				time.Sleep(300 * time.Millisecond)
			}
			a.tell()
			tr.memory.Cut("a", false)
			tr.Say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"frozen-and-replaced": func(tr *troupe) {
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			tr.plan("a", "a", "b", "b")
			time.Sleep(time.Second)
			a.suspend(20 * time.Second)
			a.tell() // at once, before anything has had time to tell it
			tr.memory.Expire("a")
			tr.plan("b", "b", "b", "b")
			time.Sleep(2 * time.Second)
			b.tell()
			tr.plan("a", "b", "b", "b")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
			b.stop()
		},
		"taken": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(1100 * time.Millisecond)
			view, err := tr.memory.For("leader").View(tr.t.Context())
			if err != nil {
				tr.t.Error(err)
			}
			tr.Say("the leader takes partition 2")
			if err := tr.leader.Evict(tr.t.Context(), 2, view.Owners[2].Epoch); err != nil {
				tr.t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
			a.tell()
			time.Sleep(time.Second)
			a.tell()
			a.stop()
		},
		"waits": func(tr *troupe) { // the other takes its time
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			a.slow = 4 * time.Second
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.plan("b", "a", "a", "a")
			time.Sleep(6 * time.Second)
			b.tell()
			a.stop()
			b.stop()
		},
		"name-taken": func(tr *troupe) {
			a := tr.enter("a", "p1")
			time.Sleep(time.Second)
			tr.enter("a", "p2")
			time.Sleep(20 * time.Second)
			a.tell()
			a.stop()
		},
		"name-freed": func(tr *troupe) { // a restart after a crash waits for its own former lease
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.Say("the process of a is killed: the store hears of it no more")
			tr.memory.Kill("a")
			a.stop()
			time.Sleep(time.Second)
			again := tr.enter("a", "p2")
			time.Sleep(12 * time.Second)
			again.tell()
			again.stop()
		},
		"name-lost": func(tr *troupe) {
			a := tr.enter("a", "p1")
			time.Sleep(time.Second)
			a.suspend(20 * time.Second)
			tr.memory.Expire("a")
			tr.memory.Cut("a", true)
			if _, err := tr.memory.For("x").Join(tr.t.Context(), cluster.Heartbeat{Node: "a", Process: "p2"}, time.Minute); err != nil {
				tr.t.Error(err)
			}
			tr.Say("another process has the name of a")
			time.Sleep(2100 * time.Millisecond)
			tr.memory.Cut("a", false)
			time.Sleep(3 * time.Second)
		},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			clustertest.CompareTranscript(t, name, play(t, scene))
		})
	}
}
