package client

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A member is a session with a node. Its methods never block.
type member interface {
	// attach asks the node for partitions from where they are, again if it has them already; detach for none of them any more.
	attach(partitions []uint32)
	detach(partitions []uint32)
	// leave ends the session.
	leave()
}

// addresses say where sessions are tried, one after the other.
type addresses interface {
	// next returns where the next one is to be; it may wait, and is false where there is to be none.
	next(ctx context.Context) (address string, ok bool)
	// others reports whether the next one is elsewhere, so that there is no reason to wait after a first failure.
	others() bool
	// over hears that the last one has ended.
	over()
}

// A fleetConfig configures a fleet. Everything is required.
type fleetConfig struct {
	// addresses are where to begin.
	addresses []string
	// dialable reports whether an address of the topology may be used.
	dialable func(address string) bool
	// link runs sessions until there is to be none, or the context ends.
	link func(ctx context.Context, at addresses)
}

// A fleet is the sessions of a client that follows the topology.
type fleet struct {
	cfg   fleetConfig
	links sync.WaitGroup
	freed chan struct{} // holds one signal: a session or an attempt has ended

	mu struct {
		sync.Mutex
		begin     func(node string)   // begins a link, nil before and after run
		version   uint64              // of the topology
		addresses map[string]string   // by node
		owners    []string            // by partition
		trying    map[string]struct{} // nodes with which a link has a session, or tries to
		resting   map[string]struct{} // nodes with which a link waits to try again: no other is begun
		up        map[string]member   // by node, those to which partitions may be attached
		nodes     map[member]string
		attached  [][]member // by partition: who serves it, the last one from now on
		turn      int        // of the search
	}
}

// newFleet makes a fleet. It starts nothing.
func newFleet(cfg fleetConfig) *fleet {
	f := &fleet{cfg: cfg, freed: make(chan struct{}, 1)}
	f.mu.trying, f.mu.resting = make(map[string]struct{}), make(map[string]struct{})
	f.mu.up, f.mu.nodes = make(map[string]member), make(map[member]string)
	return f
}

// run keeps sessions until the context ends.
func (f *fleet) run(ctx context.Context) {
	begin := func(node string) {
		f.links.Go(func() { f.cfg.link(ctx, &link{fleet: f, node: node, first: true}) })
	}
	f.locked(func() { f.mu.begin = begin })
	f.cfg.link(ctx, search{f})
	f.locked(func() { f.mu.begin = nil })
	f.links.Wait()
}

func (f *fleet) locked(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// up hears that a session has begun, with a node of a cluster of so many partitions. sessions that know of another number are over.
func (f *fleet) up(s member, node string, partitions uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.mu.up[node]; before != nil {
		before.leave() // the node ends it anyway
	}
	f.mu.up[node], f.mu.nodes[s] = s, node
	if len(f.mu.attached) != int(partitions) {
		for other, node := range f.mu.nodes {
			if other != s {
				other.leave()
				delete(f.mu.up, node)
			}
		}
		f.mu.up[node] = s
		f.mu.attached, f.mu.owners, f.mu.version = make([][]member, partitions), nil, 0
	}
	f.route()
}

// down hears that a session has ended.
func (f *fleet) down(s member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.mu.nodes[s]
	delete(f.mu.nodes, s)
	if f.mu.up[node] == s {
		delete(f.mu.up, node)
	}
	for p, at := range f.mu.attached {
		f.mu.attached[p] = slices.DeleteFunc(at, func(other member) bool { return other == s })
	}
	f.route()
	f.signal()
}

// retreat hears that the node of a session will not serve it for long: others take its partitions over. The session goes on until it ends.
func (f *fleet) retreat(s member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node := f.mu.nodes[s]; f.mu.up[node] == s {
		delete(f.mu.up, node)
		f.route()
	}
}

// learn hears of a topology. One that is not later changes nothing.
func (f *fleet) learn(t *streampb.Topology) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.GetVersion() <= f.mu.version {
		return
	}
	f.mu.version, f.mu.addresses, f.mu.owners = t.GetVersion(), make(map[string]string), make([]string, len(t.GetOwners()))
	for _, n := range t.GetNodes() {
		if f.cfg.dialable(n.GetAddress()) {
			f.mu.addresses[n.GetName()] = n.GetAddress()
		}
	}
	for p, owner := range t.GetOwners() {
		if owner >= 0 && int(owner) < len(t.GetNodes()) {
			f.mu.owners[p] = t.GetNodes()[owner].GetName()
		}
	}
	f.route()
}

// arrived hears that a session has caught up in partitions: those that had them before are left.
func (f *fleet) arrived(s member, partitions []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := make(map[member][]uint32)
	for _, p := range partitions {
		if int(p) >= len(f.mu.attached) {
			continue
		}
		at := f.mu.attached[p]
		if len(at) < 2 || at[len(at)-1] != s {
			continue
		}
		for _, before := range at[:len(at)-1] {
			left[before] = append(left[before], p)
		}
		f.mu.attached[p] = []member{s}
	}
	for before, partitions := range left {
		before.detach(partitions)
	}
	f.tidy()
}

// route attaches partitions where they are to be served, and begins the links that are missing. Under the mutex.
func (f *fleet) route() {
	if f.mu.begin == nil || len(f.mu.up) == 0 {
		return
	}
	up := slices.Sorted(maps.Keys(f.mu.up))
	attach := make(map[member][]uint32)
	for p, at := range f.mu.attached {
		owner, now := "", ""
		if p < len(f.mu.owners) {
			owner = f.mu.owners[p]
		}
		if len(at) > 0 {
			now = f.mu.nodes[at[len(at)-1]]
		}
		s := f.mu.up[whose(p, owner, now, up)]
		switch i := slices.Index(at, s); {
		case i < 0:
			attach[s] = append(attach[s], uint32(p))
			f.mu.attached[p] = append(at, s)
		case i < len(at)-1: // it has gone on there, but nobody hears that it has arrived
			attach[s] = append(attach[s], uint32(p))
			f.mu.attached[p] = append(slices.Delete(at, i, i+1), s)
		}
	}
	for s, partitions := range attach {
		s.attach(partitions)
	}
	for _, node := range slices.Compact(slices.Sorted(slices.Values(f.mu.owners))) {
		if f.misses(node) {
			f.mu.trying[node] = struct{}{}
			f.mu.begin(node)
		}
	}
	f.tidy()
}

// whose says at which of the nodes that are up, in order, a partition is to be served: by its owner; where that is not up by who serves it now;
// or by any, spread over all.
func whose(partition int, owner, now string, up []string) string {
	for _, node := range []string{owner, now} {
		if slices.Contains(up, node) {
			return node
		}
	}
	return up[partition%len(up)]
}

// misses reports whether a link to a node is missing. Under the mutex.
func (f *fleet) misses(node string) bool {
	_, known := f.mu.addresses[node]
	_, trying := f.mu.trying[node]
	_, resting := f.mu.resting[node]
	return known && !trying && !resting && !f.has(node) && len(f.mu.up) > 0 && slices.Contains(f.mu.owners, node)
}

// has reports whether there is a session with a node, even one that is about to end. Under the mutex.
func (f *fleet) has(node string) bool {
	for _, with := range f.mu.nodes {
		if with == node {
			return true
		}
	}
	return false
}

// tidy leaves nodes that own nothing and serve nothing. Under the mutex.
func (f *fleet) tidy() {
	for node, s := range f.mu.up {
		serves := slices.ContainsFunc(f.mu.attached, func(at []member) bool { return slices.Contains(at, s) })
		if len(f.mu.up) > 1 && !serves && !slices.Contains(f.mu.owners, node) {
			s.leave()
		}
	}
}

func (f *fleet) signal() { notify(f.freed) }
