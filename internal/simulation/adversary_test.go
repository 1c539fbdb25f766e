package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
)

const (
	slice    = 50 * time.Millisecond // how often the world is looked at
	enduring = 8 * ttl               // how long a process that gives nothing up is left alone at the end
	owning   = 25 * time.Second      // within which, once all is healed, every partition is owned
	moving   = 15 * time.Second      // within which what is written then has come everywhere
	resting  = 20 * time.Second      // in which few plans more are made
)

// A healing ends something that the adversary has done.
type healing struct {
	at   time.Duration
	what func()
}

// An adversary does to a world what its seed says.
type adversary struct {
	*world

	heals []healing
	acts  int
	ctx   context.Context // of the clients
	end   context.CancelFunc
}

// play goes through the life of one world, in a bubble.
func (w *world) play() {
	a := &adversary{world: w, acts: 8 + w.rand.IntN(14)}
	a.ctx, a.end = context.WithCancel(context.Background())
	for _, n := range w.nodes {
		n.start()
		a.pass(time.Duration(w.rand.IntN(500)) * time.Millisecond)
	}
	for _, c := range w.clients {
		w.running.Go(func() { c.run(a.ctx) })
	}
	a.pass(time.Duration(w.rand.IntN(8000)) * time.Millisecond)
	for range a.acts {
		for n := 1 + max(0, w.rand.IntN(5)-2); n > 0; n-- { // now and then several at once
			a.act()
		}
		a.pass(time.Duration(w.rand.IntN(3500)) * time.Millisecond)
		if w.broken() {
			break
		}
	}
	if !w.broken() && a.sick() {
		a.pass(enduring)
	}
	if !w.broken() {
		a.calm()
	}
	a.heal()
	a.finish()
}

// sick reports whether a living process gives nothing up.
func (a *adversary) sick() bool {
	return slices.ContainsFunc(a.nodes, func(n *node) bool {
		p := n.latest.Load()
		return p.alive() && p.hoards.Load()
	})
}

// pass lets time pass, writes a little, and looks at the world.
func (a *adversary) pass(d time.Duration) {
	for until := a.now() + d; a.now() < until; {
		time.Sleep(min(slice, until-a.now()))
		synctest.Wait()
		if a.rand.IntN(4) == 0 {
			a.write(1 + a.rand.IntN(4))
		}
		a.check()
		for len(a.heals) > 0 && a.heals[0].at <= a.now() {
			due := a.heals[0]
			a.heals = a.heals[1:]
			due.what()
		}
		a.restart()
	}
	synctest.Wait()
}

// nap lets a while of the bubble's time pass for who calls it.
func nap(d time.Duration) { time.Sleep(d) }

// restart starts processes again that have ended, a little later.
func (a *adversary) restart() {
	for _, n := range a.nodes {
		p := n.latest.Load()
		if p == nil {
			continue // not yet
		}
		select {
		case <-p.ended:
		default:
			continue
		}
		switch {
		case !n.wanted || slices.ContainsFunc(*n.lives.Load(), (*process).alive):
		case n.again == 0:
			n.again = a.now() + time.Duration(a.rand.IntN(1500))*time.Millisecond
		case n.again <= a.now():
			a.say("%s is started again", n.name)
			n.start()
		}
	}
}

// later has something done after a while.
func (a *adversary) later(d time.Duration, what func()) {
	a.heals = append(a.heals, healing{a.now() + d, what})
	slices.SortStableFunc(a.heals, func(x, y healing) int { return int(x.at - y.at) })
}

// some returns a time of up to d, at least a tenth.
func (a *adversary) some(d time.Duration) time.Duration {
	return d/10 + time.Duration(a.rand.Int64N(int64(d*9/10)))
}

// act does one thing to the world.
func (a *adversary) act() {
	a.count(func(f *figures) { f.acts++ })
	n := a.nodes[a.rand.IntN(len(a.nodes))]
	if a.rand.IntN(6) == 0 {
		if leader := a.leader(); leader != nil {
			n = leader
		}
	}
	p := n.latest.Load()
	c := a.clients[a.rand.IntN(len(a.clients))]
	if !p.alive() && a.rand.IntN(2) == 0 {
		return
	}
	switch a.rand.IntN(20) {
	case 0, 1:
		a.kill(n)
	case 2:
		a.stop(n)
	case 3, 4:
		a.freeze(n, p)
	case 5, 6:
		a.leap(p)
	case 7:
		a.cut(p, a.some(3*ttl))
	case 8:
		d := a.some(3 * ttl)
		a.say("answers to %s are lost for %s", p.id, d)
		p.set(func() { p.network.mu.deaf = true })
		a.later(d, func() { p.set(func() { p.network.mu.deaf = false }) })
	case 9:
		a.say("some answers to %s are lost", p.id)
		p.set(func() { p.network.mu.mute += 1 + a.rand.IntN(5) })
	case 10:
		d := a.some(2 * ttl)
		a.say("the network of %s is slow for %s", p.id, d)
		slow := a.some(time.Second)
		p.set(func() { p.network.mu.slow = slow })
		a.later(d, func() { p.set(func() { p.network.mu.slow = usual }) })
	case 11:
		d := a.some(3 * time.Second)
		a.say("%s takes %s to acknowledge", c.name, d)
		c.lag.Store(int64(d))
		a.later(a.some(10*time.Second), func() { c.lag.Store(0) })
	case 12:
		forgets := a.rand.IntN(2) == 0
		a.say("%s breaks, and forgets: %t", c.name, forgets)
		c.forgets.Store(forgets)
		c.interrupt()
	case 13:
		d := a.some(8 * time.Second)
		a.say("the store of checkpoints fails for %s", d)
		a.shelf.fail(true)
		a.later(d, func() { a.shelf.fail(false) })
	case 14:
		d := a.some(6 * time.Second)
		a.say("the log answers nobody for %s", d)
		a.source.Stall(true)
		a.later(d, func() { a.source.Stall(false) })
	case 15:
		events := a.rand.IntN(300)
		a.say("%d events come at once", events)
		a.write(events)
	case 16:
		d := a.some(5 * ttl)
		a.say("the store of checkpoints does not answer %s for %s", p.id, d)
		p.shunned.Store(true)
		a.later(d, func() { p.shunned.Store(false) })
	case 17:
		d := a.some(40 * ttl)
		a.say("%s is sick and gives nothing up for %s", p.id, d)
		p.hoards.Store(true)
		a.later(d, func() { p.hoards.Store(false) })
	case 18:
		k := checkpoint.Key{Subscriber: c.name}
		if a.rand.IntN(2) == 0 {
			k = checkpoint.Key{Subscriber: sink, Shared: true, Partition: change.Partition(a.rand.IntN(a.partitions))}
		}
		a.shelf.rewind(k, a.some(3*time.Second))
	case 19:
		a.say("%s attaches its partitions again", c.name)
		c.reattach.Store(true)
	}
}

// leader returns the node that leads, if it can be told.
func (a *adversary) leader() *node {
	view, err := a.roster.For("observer").View(context.Background())
	if err != nil {
		return nil
	}
	for _, n := range a.nodes {
		if n.name == view.Leader {
			return n
		}
	}
	return nil
}

// kill kills a node's process, which is started again at once, or after a while.
func (a *adversary) kill(n *node) {
	p := n.latest.Load()
	if !p.alive() {
		return
	}
	a.say("%s is killed", p.id)
	p.kill()
	n.wanted = false
	a.later(a.some(2*ttl), func() { n.wanted = true })
}

// stop stops a node in its own time.
func (a *adversary) stop(n *node) {
	p := n.latest.Load()
	if !p.alive() {
		return
	}
	a.say("%s is stopped", p.id)
	p.stop()
	n.wanted = false
	a.later(a.some(2*ttl), func() { n.wanted = true })
}

// freeze has a process stand still. Now and then another one is started meanwhile in its name.
func (a *adversary) freeze(n *node, p *process) {
	if !p.alive() || p.still() != nil {
		return
	}
	d := a.some(4 * ttl)
	a.say("%s stands still for %s", p.id, d)
	a.count(func(f *figures) { f.stood++ })
	p.freeze()
	a.roster.Cut(p.id, true)
	a.later(d, func() {
		if p.still() == nil {
			return
		}
		a.say("%s goes on", p.id)
		a.roster.Cut(p.id, p.cutOff())
		p.thaw()
	})
	if a.rand.IntN(4) == 0 && d > ttl {
		a.later(ttl, func() {
			if n.latest.Load() == p && p.alive() {
				a.say("%s is started a second time", n.name)
				n.start()
			}
		})
	}
}

// leap has a process find out that it was suspended.
func (a *adversary) leap(p *process) {
	if !p.alive() {
		return
	}
	d := ttl + a.some(2*ttl)
	a.say("%s was suspended for %s", p.id, d)
	a.count(func(f *figures) { f.stood++ })
	p.leap(d)
}

// cut cuts a process off from the stores, both ways.
func (a *adversary) cut(p *process, d time.Duration) {
	if !p.alive() {
		return
	}
	a.say("%s is cut off for %s", p.id, d)
	p.set(func() { p.network.mu.cut = true })
	a.roster.Cut(p.id, true)
	a.later(d, func() {
		p.set(func() { p.network.mu.cut = false })
		a.roster.Cut(p.id, p.still() != nil)
	})
}

// heal ends everything that the adversary has done.
func (a *adversary) heal() {
	a.say("all is healed")
	for _, h := range a.heals {
		h.what()
	}
	a.heals = nil
	a.healed.Store(true)
	for _, n := range a.nodes {
		n.wanted = true
		for _, p := range *n.lives.Load() {
			p.set(func() { p.network.mu.mute, p.network.mu.deaf, p.network.mu.slow = 0, false, usual })
		}
	}
	for _, c := range a.clients {
		c.lag.Store(0)
	}
}

// calm heals the world, and looks whether it comes to rest and goes on.
func (a *adversary) calm() {
	a.heal()
	began := a.now()
	if !a.await(owning, func() bool { return !slices.Contains(a.owned(), "") }) {
		a.wrong("%s after all was healed the partitions are owned by %q", owning, a.owned())
		return
	}
	a.say("every partition is owned %s after all was healed", a.now()-began)
	for _, c := range a.clients { // whoever could not claim its name has no checkpoint until it connects again
		c.interrupt()
	}
	a.write(50)
	wrote, sunk := a.lengths()
	if !a.await(moving, func() bool { return a.behind(wrote, sunk) == "" }) {
		a.wrong("%s after events were written: %s", moving, a.behind(wrote, sunk))
		for _, n := range a.nodes {
			a.say("%s", n.latest.Load())
		}
		return
	}
	plans := a.planned()
	a.pass(resting)
	if more := a.planned() - plans; more > 12 {
		a.wrong("%d plans are made in %s in which nothing happens", more, resting)
	}
	if all := a.planned(); all > 10+4*a.acts*len(a.nodes) {
		a.wrong("%d plans after %d acts", all, a.acts)
	}
	// One may just be on its way, to balance what the members have.
	if !a.await(owning, func() bool { return !slices.Contains(a.owned(), "") }) {
		a.wrong("in the end the partitions are owned by %q", a.owned())
	}
	for _, n := range a.nodes {
		if p := n.latest.Load(); p.alive() && (!p.member.Trusted() || p.run.Failing()) {
			a.wrong("in the end %s is trusted: %t, and cannot save: %t", p.id, p.member.Trusted(), p.run.Failing())
		}
	}
	view, err := a.roster.For("observer").View(context.Background())
	for _, m := range view.Members {
		if err != nil || m.Status != cluster.StatusHealthy {
			a.wrong("in the end %s says that it is %s: %v, %v", m.Node, m.Status, m.Checks, err)
		}
	}
}

// await lets time pass until something holds, at most so long.
func (a *adversary) await(within time.Duration, holds func() bool) bool {
	for until := a.now() + within; a.now() < until; {
		if holds() {
			return true
		}
		a.pass(200 * time.Millisecond)
	}
	return holds()
}

func (a *adversary) planned() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.plans
}

// lengths returns how many events there are of each partition, as clients get them and as the sink
// does.
func (a *adversary) lengths() (keyed, sunk []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.mu.keyed {
		keyed = append(keyed, len(t.positions))
	}
	for _, t := range a.mu.sunk {
		sunk = append(sunk, len(t.positions))
	}
	return keyed, sunk
}

// behind says who does not have so many events of each partition, or has no checkpoint that says
// so, empty for nobody.
func (a *adversary) behind(keyed, sunk []int) string {
	for p, n := range keyed {
		for _, c := range a.clients {
			c.mu.Lock()
			done := c.mu.done[p]
			c.mu.Unlock()
			saved := a.shelf.stands(checkpoint.Key{Subscriber: c.name})
			at := saved.Earliest()
			if p < a.partitions {
				at = saved.In(change.Partition(p))
			}
			a.mu.Lock()
			upTo := a.mu.keyed[p].upTo(at)
			a.mu.Unlock()
			if done < n || upTo < n {
				return fmt.Sprintf("partition %d: of %d events %s has %d, its checkpoint is at %d", p, n, c.name, done, upTo)
			}
		}
	}
	for p, n := range sunk {
		saved := a.shelf.stands(checkpoint.Key{Subscriber: sink, Shared: true, Partition: change.Partition(p)})
		a.mu.Lock()
		drunk, upTo := a.mu.drunk[p].n, a.mu.sunk[p].upTo(saved.Position)
		a.mu.Unlock()
		if drunk < n || upTo < n {
			return fmt.Sprintf("partition %d: of %d events the sink has %d, its checkpoint is at %d", p, n, drunk, upTo)
		}
	}
	return ""
}

// finish stops everything.
func (a *adversary) finish() {
	for _, n := range a.nodes {
		n.wanted = false
		for _, p := range *n.lives.Load() {
			p.stop()
		}
	}
	a.end()
	a.running.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
	for key := range maps.Keys(a.mu.terms) {
		a.complain("partition %d: epoch %s is left over", key.partition, key.epoch)
	}
}
