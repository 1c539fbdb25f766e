package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A member is a session with a node. Its methods do not block.
type member interface {
	// attach requests partitions at their current positions, again if the session already has them;
	// detach releases them.
	attach(partitions []uint32)
	detach(partitions []uint32)
	// leave ends the session.
	leave()
}

// addresses decide where sessions are opened, one after the other.
type addresses interface {
	// next returns the next address. It may block, and returns false when no session is needed.
	next(ctx context.Context) (address string, ok bool)
	// others reports whether the next address is another one, so that the first retry need not
	// wait.
	others() bool
	// over is called when the last session has ended.
	over()
}

// A fleetConfig configures a fleet. All fields are required.
type fleetConfig struct {
	// addresses are the configured addresses.
	addresses []string
	// dialable reports whether an address of the topology may be used.
	dialable func(address string) bool
	// link runs sessions until none is needed or the context ends.
	link func(ctx context.Context, at addresses)
}

// A fleet manages the sessions of a client that follows the topology.
type fleet struct {
	cfg   fleetConfig
	links sync.WaitGroup
	freed chan struct{} // holds one signal: a session or an attempt has ended
	alone atomic.Bool   // there is no session to which partitions may be attached

	mu struct {
		sync.Mutex
		begin     func(node string)   // starts a link, nil before and after run
		version   uint64              // of the topology
		addresses map[string]string   // by node
		owners    []string            // by partition
		trying    map[string]struct{} // nodes with which a link has a session or is opening one
		resting   map[string]struct{} // nodes whose link backs off: no other link is started
		up        map[string]member   // by node, the sessions to which partitions may be attached
		nodes     map[member]string
		attached  [][]member // by partition: the sessions that serve it; the last one takes over
		turn      int        // of the search
	}
}

// newFleet returns a fleet. It starts nothing.
func newFleet(cfg fleetConfig) *fleet {
	f := &fleet{cfg: cfg, freed: make(chan struct{}, 1)}
	f.mu.trying, f.mu.resting = make(map[string]struct{}), make(map[string]struct{})
	f.mu.up, f.mu.nodes = make(map[string]member), make(map[member]string)
	return f
}

// run maintains sessions until the context ends.
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

// up registers a new session with a node, and the number of partitions. Sessions with another
// number of partitions end.
func (f *fleet) up(s member, node string, partitions uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.mu.up[node]; before != nil {
		before.leave() // the node ends it anyway
	}
	f.mu.up[node] = s
	f.mu.nodes[s] = node
	if len(f.mu.attached) != int(partitions) {
		for other, node := range f.mu.nodes {
			if other != s {
				other.leave()
				delete(f.mu.up, node)
			}
		}
		f.mu.up[node] = s
		f.mu.attached = make([][]member, partitions)
		f.mu.owners = nil
		f.mu.version = 0
	}
	f.route()
}

// down removes a session that has ended.
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

// retreat moves the partitions of a session to other nodes, because its node will stop serving
// soon. The session continues until it ends.
func (f *fleet) retreat(s member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node := f.mu.nodes[s]; f.mu.up[node] == s {
		delete(f.mu.up, node)
		f.route()
	}
}

// learn applies a topology. One that is not newer is ignored.
func (f *fleet) learn(t *streampb.Topology) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.GetVersion() <= f.mu.version {
		return
	}
	f.mu.version = t.GetVersion()
	f.mu.addresses = make(map[string]string)
	f.mu.owners = make([]string, len(t.GetOwners()))
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

// withdrawn moves partitions to other sessions, because the node of one has stopped delivering them
// to it: they have moved, and the broadcast window of the handoff is over. Until a topology says
// where they are, another node serves them.
func (f *fleet) withdrawn(s member, partitions []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.mu.nodes[s]
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(f.mu.up)), func(other string) bool { return other == node })
	for _, p := range partitions {
		if int(p) < len(f.mu.attached) {
			f.mu.attached[p] = slices.DeleteFunc(f.mu.attached[p], func(other member) bool { return other == s })
		}
		if int(p) < len(f.mu.owners) && f.mu.owners[p] == node && len(others) > 0 {
			f.mu.owners[p] = others[int(p)%len(others)]
		}
	}
	s.detach(partitions)
	f.route()
}

// arrived detaches partitions from the sessions that had them before, because a session has caught
// up in them.
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

// route attaches partitions to the sessions that should serve them, and starts missing links. The
// caller holds the mutex.
func (f *fleet) route() {
	f.alone.Store(len(f.mu.up) == 0)
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
		case i < len(at)-1: // the session is already attached: request the partition again to learn when it has caught up
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

// whose selects the node that should serve a partition: its owner if that is up, else the current
// one if that is up, else any, spread evenly. up is sorted.
func whose(partition int, owner, now string, up []string) string {
	for _, node := range []string{owner, now} {
		if slices.Contains(up, node) {
			return node
		}
	}
	return up[partition%len(up)]
}

// misses reports whether a link to a node must be started. The caller holds the mutex.
func (f *fleet) misses(node string) bool {
	_, known := f.mu.addresses[node]
	_, trying := f.mu.trying[node]
	_, resting := f.mu.resting[node]
	return known && !trying && !resting && !f.has(node) && len(f.mu.up) > 0 && slices.Contains(f.mu.owners, node)
}

// has reports whether a session with a node exists, even one that is about to end. The caller holds
// the mutex.
func (f *fleet) has(node string) bool {
	for _, with := range f.mu.nodes {
		if with == node {
			return true
		}
	}
	return false
}

// tidy ends sessions with nodes that own and serve no partition. The caller holds the mutex.
func (f *fleet) tidy() {
	for node, s := range f.mu.up {
		serves := slices.ContainsFunc(f.mu.attached, func(at []member) bool { return slices.Contains(at, s) })
		if len(f.mu.up) > 1 && !serves && !slices.Contains(f.mu.owners, node) {
			s.leave()
		}
	}
}

func (f *fleet) signal() { notify(f.freed) }
