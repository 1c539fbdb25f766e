package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Session is one with a node. Its methods never block.
type Session interface {
	// Attach asks the node to serve partitions from where they stand, Detach to serve them no longer.
	Attach(partitions []uint32)
	Detach(partitions []uint32)
	// Leave ends the session.
	Leave()
}

// Addresses say where sessions are tried, one after the other.
type Addresses interface {
	// Next returns where the next one is to be; it may wait, and is false where there is to be none.
	Next(ctx context.Context) (address string, ok bool)
	// Others reports whether the next one is elsewhere, so that there is no reason to wait after a first failure.
	Others() bool
	// Over hears that the last one has ended.
	Over()
}

// Config configures a Fleet. Everything is required.
type Config struct {
	// Addresses are where to begin.
	Addresses []string
	// Dialable reports whether an address of the topology may be used.
	Dialable func(address string) bool
	// Known reports whether it is known where all partitions stand: before, there is one session at most.
	Known func() bool
	// Link runs sessions until there is to be none, or the context ends.
	Link func(context.Context, Addresses)
}

// A Fleet is the sessions of a client that follows the topology.
type Fleet struct {
	cfg     Config
	links   sync.WaitGroup
	freed   chan struct{} // holds one signal: a session or an attempt has ended
	settled atomic.Bool   // it is known where all partitions stand

	mu struct {
		sync.Mutex
		begin     func(node string)   // begins a link, nil before and after Run
		version   uint64              // of the topology
		addresses map[string]string   // by node
		owners    []string            // by partition
		trying    map[string]struct{} // nodes with which a link has a session, or tries to
		resting   map[string]struct{} // nodes with which a link waits to try again: no other is begun
		up        map[string]Session  // by node, those to which partitions may be attached
		nodes     map[Session]string
		attached  [][]Session // by partition: who serves it, the last one from now on
		turn      int         // of the search
	}
}

// New makes a Fleet. It starts nothing.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg, freed: make(chan struct{}, 1)}
	f.mu.trying, f.mu.resting = make(map[string]struct{}), make(map[string]struct{})
	f.mu.up, f.mu.nodes = make(map[string]Session), make(map[Session]string)
	return f
}

// Run keeps sessions until the context ends.
func (f *Fleet) Run(ctx context.Context) {
	begin := func(node string) {
		f.links.Go(func() { f.cfg.Link(ctx, &link{fleet: f, node: node, first: true}) })
	}
	f.locked(func() { f.mu.begin = begin })
	f.cfg.Link(ctx, search{f})
	f.locked(func() { f.mu.begin = nil })
	f.links.Wait()
}

func (f *Fleet) locked(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Up hears that a session has begun, with a node of a cluster of so many partitions. Sessions that know of another number are over.
func (f *Fleet) Up(s Session, node string, partitions uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.mu.up[node]; before != nil {
		before.Leave() // the node ends it anyway
	}
	f.mu.up[node], f.mu.nodes[s] = s, node
	if len(f.mu.attached) != int(partitions) {
		for other, node := range f.mu.nodes {
			if other != s {
				other.Leave()
				delete(f.mu.up, node)
			}
		}
		f.mu.up[node] = s
		f.mu.attached, f.mu.owners, f.mu.version = make([][]Session, partitions), nil, 0
		f.settled.Store(false)
	}
	f.route()
}

// Down hears that a session has ended.
func (f *Fleet) Down(s Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.mu.nodes[s]
	delete(f.mu.nodes, s)
	if f.mu.up[node] == s {
		delete(f.mu.up, node)
	}
	for p, at := range f.mu.attached {
		f.mu.attached[p] = slices.DeleteFunc(at, func(other Session) bool { return other == s })
	}
	f.route()
	f.signal()
}

// Retreat hears that the node of a session will not serve it for long: others take its partitions over. The session goes on until it ends.
func (f *Fleet) Retreat(s Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node := f.mu.nodes[s]; f.mu.up[node] == s {
		delete(f.mu.up, node)
		f.route()
	}
}

// Learn hears of a topology. One that is not later changes nothing.
func (f *Fleet) Learn(t *streampb.Topology) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.GetVersion() <= f.mu.version {
		return
	}
	f.mu.version, f.mu.addresses, f.mu.owners = t.GetVersion(), make(map[string]string), make([]string, len(t.GetOwners()))
	for _, n := range t.GetNodes() {
		if f.cfg.Dialable(n.GetAddress()) {
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

// Progress hears that partitions have moved on, which may be what was waited for.
func (f *Fleet) Progress() {
	if !f.settled.Load() {
		f.locked(f.route)
	}
}

// Arrived hears of a batch: who served the partition before is left.
func (f *Fleet) Arrived(s Session, partition uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(partition) >= len(f.mu.attached) {
		return
	}
	at := f.mu.attached[partition]
	if len(at) < 2 || at[len(at)-1] != s {
		return
	}
	for _, before := range at[:len(at)-1] {
		before.Detach([]uint32{partition})
	}
	f.mu.attached[partition] = []Session{s}
	f.tidy()
}

// Elsewhere returns the partitions that a session does not serve.
func (f *Fleet) Elsewhere(s Session) (partitions []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.mu.attached {
		if !slices.Contains(at, s) {
			partitions = append(partitions, uint32(p))
		}
	}
	return partitions
}

// route attaches partitions where they are to be served, and begins the links that are missing. Under the mutex.
func (f *Fleet) route() {
	if f.mu.begin == nil || len(f.mu.up) == 0 || !f.settled.Load() && !f.cfg.Known() {
		return
	}
	f.settled.Store(true)
	up := slices.Sorted(maps.Keys(f.mu.up))
	attach := make(map[Session][]uint32)
	for p, at := range f.mu.attached {
		owner, now := "", ""
		if p < len(f.mu.owners) {
			owner = f.mu.owners[p]
		}
		if len(at) > 0 {
			now = f.mu.nodes[at[len(at)-1]]
		}
		s := f.mu.up[place(p, owner, now, up)]
		switch i := slices.Index(at, s); {
		case i < 0:
			attach[s] = append(attach[s], uint32(p))
			f.mu.attached[p] = append(at, s)
		case i < len(at)-1: // it has gone on there
			f.mu.attached[p] = append(slices.Delete(at, i, i+1), s)
		}
	}
	for s, partitions := range attach {
		s.Attach(partitions)
	}
	for _, node := range slices.Compact(slices.Sorted(slices.Values(f.mu.owners))) {
		if f.misses(node) {
			f.mu.trying[node] = struct{}{}
			f.mu.begin(node)
		}
	}
	f.tidy()
}

// place says at which of the nodes that are up, in order, a partition is to be served: by its owner; where that is not up by who serves it now;
// or by any, spread over all.
func place(partition int, owner, now string, up []string) string {
	for _, node := range []string{owner, now} {
		if slices.Contains(up, node) {
			return node
		}
	}
	return up[partition%len(up)]
}

// misses reports whether a link to a node is missing. Under the mutex.
func (f *Fleet) misses(node string) bool {
	_, known := f.mu.addresses[node]
	_, trying := f.mu.trying[node]
	_, resting := f.mu.resting[node]
	return known && !trying && !resting && !f.has(node) && len(f.mu.up) > 0 && slices.Contains(f.mu.owners, node)
}

// has reports whether there is a session with a node, even one that is about to end. Under the mutex.
func (f *Fleet) has(node string) bool {
	for _, with := range f.mu.nodes {
		if with == node {
			return true
		}
	}
	return false
}

// tidy leaves nodes that own nothing and serve nothing. Under the mutex.
func (f *Fleet) tidy() {
	for node, s := range f.mu.up {
		serves := slices.ContainsFunc(f.mu.attached, func(at []Session) bool { return slices.Contains(at, s) })
		if len(f.mu.up) > 1 && !serves && !slices.Contains(f.mu.owners, node) {
			s.Leave()
		}
	}
}

func (f *Fleet) signal() {
	select {
	case f.freed <- struct{}{}:
	default:
	}
}
