package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"mongostream/change"
	"mongostream/cluster"
	"mongostream/cluster/roster"
	"mongostream/cluster/rostertest"
	"mongostream/fault"
)

// A troupe is some nodes of a cluster of four partitions, and a leader that plans what the scene says.
type troupe struct {
	*transcript

	t      *testing.T
	memory *rostertest.Memory
	leader roster.Leadership
	plans  uint64
	nodes  sync.WaitGroup
}

// An actor is one process of a node.
type actor struct {
	troupe *troupe
	name   string
	share  *cluster.Share
	stop   context.CancelFunc
	slow   time.Duration // how long it takes to come to an end with a term

	mu struct {
		sync.Mutex
		suspended time.Duration
		terms     map[change.Partition]change.Term
	}
}

// play plays a scene of a minute at most, with a clock that begins at zero.
func play(t *testing.T, scene func(tr *troupe)) string {
	tr := &troupe{transcript: &transcript{}}
	synctest.Test(t, func(t *testing.T) {
		tr.t, tr.start = t, time.Now()
		tr.memory = rostertest.NewMemory(4, nil)
		var err error
		if tr.leader, err = tr.memory.For("leader").Campaign(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}
		scene(tr)
		tr.nodes.Wait()
	})
	// What happens at one moment is told by one actor after the other.
	slices.SortStableFunc(tr.mu.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(speaker(a.text), speaker(b.text)))
	})
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
	tr.say("the plan: %s", strings.Join(owners, " "))
	if err := tr.leader.Publish(tr.t.Context(), roster.Plan{Version: tr.plans, Owners: owners}); err != nil {
		tr.t.Error(err)
	}
}

// enter starts a process of a node.
func (tr *troupe) enter(node, process string) *actor {
	a := &actor{troupe: tr, name: node}
	a.mu.terms = make(map[change.Partition]change.Term)
	ctx, stop := context.WithCancel(tr.t.Context())
	a.stop = func() {
		tr.say("%s is asked to stop", node)
		stop()
	}
	a.share = cluster.NewShare(cluster.ShareConfig{
		Member: cluster.Member{Node: node, Process: process}, TTL: 9 * time.Second, Clock: a.clock, Log: tr.logger().With("of", node),
		Resume: a.resume, Release: a.release,
		Detached: func(err error) { tr.say("%s: detached", node) }, Attached: func() { tr.say("%s: attached", node) },
	}, tr.memory.For(node))
	tr.nodes.Go(func() {
		err := a.share.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(serveMoment)
			return nil
		})
		tr.say("%s: run: %v %s", node, err, fault.Of(err))
		stop()
	})
	return a
}

func (a *actor) clock() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.troupe.start) + a.mu.suspended
}

// suspend lets the process stand still, as far as its clock goes, and the leases with it.
func (a *actor) suspend(d time.Duration) {
	a.troupe.say("%s stands still for %s", a.name, d)
	a.mu.Lock()
	a.mu.suspended += d
	a.mu.Unlock()
	a.troupe.memory.Expire(a.name)
}

func (a *actor) resume(_ context.Context, terms []change.Term) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, term := range terms {
		a.mu.terms[term.Partition] = term
		a.troupe.nodes.Go(func() { // what a consumer does whose term ends
			<-term.Context.Done()
			time.Sleep(serveMoment)
			a.over(term)
		})
	}
	a.troupe.say("%s: serves %s", a.name, listed(terms))
	return nil
}

func (a *actor) release(terms []change.Term) {
	a.troupe.say("%s: is to give up %s", a.name, listed(terms))
	a.troupe.nodes.Go(func() {
		time.Sleep(serveMoment + a.slow)
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
	a.share.Ended(term)
}

// tell says what a node serves, and whether it may.
func (a *actor) tell() {
	a.mu.Lock()
	terms := slices.Collect(maps.Values(a.mu.terms))
	a.mu.Unlock()
	terms = slices.DeleteFunc(terms, func(term change.Term) bool { return term.Err() != nil })
	a.troupe.say("%s: trusted %t, owns %s", a.name, a.share.Trusted(), listed(terms))
}

func listed(terms []change.Term) string {
	var names []string
	for _, term := range terms {
		names = append(names, fmt.Sprintf("%d", term.Partition))
	}
	slices.Sort(names)
	return "[" + strings.Join(names, " ") + "]"
}

func TestShareTranscripts(t *testing.T) {
	scenes := map[string]func(tr *troupe){
		"share-moves": func(tr *troupe) {
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			time.Sleep(time.Second)
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.plan("a", "b", "a", "b")
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
		"share-cut": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.memory.Cut("a", true)
			tr.say("a is cut off")
			time.Sleep(5500 * time.Millisecond)
			a.tell()
			time.Sleep(time.Second)
			a.tell()
			time.Sleep(5100 * time.Millisecond)
			tr.memory.Cut("a", false)
			tr.say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"share-cut-shortly": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.memory.Cut("a", true)
			tr.say("a is cut off")
			time.Sleep(4 * time.Second)
			tr.memory.Cut("a", false)
			tr.say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"share-flaps": func(tr *troupe) { // answers now and then are no recovery
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
			tr.say("a is not cut off any more")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
		},
		"share-frozen-and-replaced": func(tr *troupe) {
			a, b := tr.enter("a", "p1"), tr.enter("b", "p2")
			tr.plan("a", "a", "b", "b")
			time.Sleep(time.Second)
			a.suspend(20 * time.Second)
			a.tell() // at once, before anything has had time to tell it
			tr.plan("b", "b", "b", "b")
			time.Sleep(2 * time.Second)
			b.tell()
			tr.plan("a", "a", "b", "b")
			time.Sleep(2 * time.Second)
			a.tell()
			a.stop()
			b.stop()
		},
		"share-taken": func(tr *troupe) {
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			view, err := tr.memory.For("leader").View(tr.t.Context())
			if err != nil {
				tr.t.Error(err)
			}
			tr.say("the leader takes partition 2")
			if err := tr.leader.Evict(tr.t.Context(), 2, view.Owners[2].Epoch); err != nil {
				tr.t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
			a.tell()
			time.Sleep(time.Second)
			a.tell()
			a.stop()
		},
		"share-waits": func(tr *troupe) { // the other takes its time
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
		"share-name-taken": func(tr *troupe) {
			a := tr.enter("a", "p1")
			time.Sleep(time.Second)
			tr.enter("a", "p2")
			time.Sleep(20 * time.Second)
			a.tell()
			a.stop()
		},
		"share-name-freed": func(tr *troupe) { // a restart after a crash waits for its own former lease
			a := tr.enter("a", "p1")
			tr.plan("a", "a", "a", "a")
			time.Sleep(time.Second)
			tr.say("the process of a is killed: the store hears of it no more")
			tr.memory.Kill("a")
			a.stop()
			time.Sleep(time.Second)
			again := tr.enter("a", "p2")
			time.Sleep(12 * time.Second)
			again.tell()
			again.stop()
		},
		"share-name-lost": func(tr *troupe) {
			a := tr.enter("a", "p1")
			time.Sleep(time.Second)
			a.suspend(20 * time.Second)
			tr.memory.Cut("a", true)
			if _, err := tr.memory.For("x").Join(tr.t.Context(), roster.Heartbeat{Node: "a", Process: "p2"}, time.Minute); err != nil {
				tr.t.Error(err)
			}
			tr.say("another process has the name of a")
			time.Sleep(2100 * time.Millisecond)
			tr.memory.Cut("a", false)
			time.Sleep(3 * time.Second)
		},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			got := play(t, scene)
			path := filepath.Join("testdata", name+".txt")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(string(want), got); diff != "" {
				t.Errorf("another transcript than %s (-rewrite writes it):\n%s", path, diff)
			}
		})
	}
}
