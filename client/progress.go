package client

import "slices"

// A progress is how far a client has handled the partitions of a cluster, as a value. Each partition is at the latest of: the floor; what has
// been handled of it, change by change; and where the sessions are that have it, which move batch by batch. It never goes back but in rewind.
type progress struct {
	cluster    string
	generation uint64
	known      bool  // the floor has been found
	floor      point // of all partitions
	parts      []part
}

type part struct {
	own point
	in  []*track // the sessions that have it; during a handoff there are two
}

// A track is how far a session is: everything up to its base has been handled in each partition that it has.
type track struct {
	base   point
	wanted map[uint32]struct{} // that the session is to have
	asked  map[uint32]int      // how often it has been asked for a partition and has not come to the answer; nil if it has all
	waits  *place              // where it waits for others; nil while it does not
}

func newProgress(cluster string, partitions uint32) progress {
	return progress{cluster: cluster, parts: make([]part, partitions)}
}

// restore makes the progress of a position.
func restore(p Position) progress {
	g := newProgress(p.cluster, p.partitions)
	g.generation, g.known, g.floor = p.generation, true, p.rest
	if len(p.elsewhere) > 0 {
		g.floor = point{}
		at := p.reader()
		for partition := range p.partitions {
			g.parts[partition].own = at(partition)
		}
	}
	return g
}

// saw reports whether the change at a place has been handled in a partition.
func (g *progress) saw(partition uint32, p *place) bool {
	of := &g.parts[partition]
	if of.own.saw(p) || g.floor.saw(p) {
		return true
	}
	for _, t := range of.in {
		if t.base.saw(p) {
			return true
		}
	}
	return false
}

// sawAll reports whether it has in every partition.
func (g *progress) sawAll(p *place) bool {
	if g.floor.saw(p) {
		return true
	}
	for partition := range g.parts {
		if !g.saw(uint32(partition), p) {
			return false
		}
	}
	return true
}

// at returns how far a partition is.
func (g *progress) at(partition uint32) point {
	at := g.floor
	of := &g.parts[partition]
	at.join(&of.own)
	for _, t := range of.in {
		at.join(&t.base)
	}
	return at
}

// reach moves a partition to a change that has been handled.
func (g *progress) reach(partition uint32, p *place) { g.parts[partition].own.reach(p) }

// reachAll moves all partitions to a change that concerns all of them, once everything before it has been handled everywhere.
func (g *progress) reachAll(p *place) { g.floor.reach(p) }

// begin lets a session begin at a place, where everything begins if nothing is known. It has all partitions, or none.
func (g *progress) begin(t *track, at *place, all bool) {
	if !g.known {
		g.known = true
		g.floor.reach(at)
	}
	t.base = point{place: *at}
	if !all {
		t.wanted, t.asked = make(map[uint32]struct{}), make(map[uint32]int)
		return
	}
	for partition := range g.parts {
		g.parts[partition].in = append(g.parts[partition].in, t)
	}
}

// want has a session asked for partitions.
func (t *track) want(partitions []uint32) {
	for _, p := range partitions {
		t.wanted[p] = struct{}{}
	}
}

// has reports whether the session has a partition.
func (g *progress) has(t *track, partition uint32) bool {
	return slices.Contains(g.parts[partition].in, t)
}

// attach lets a session have partitions from a place on. Those that it has been told to leave since it was asked for them, or asked for again,
// it does not have.
func (g *progress) attach(t *track, partitions []uint32, at *place) {
	g.settle(t)
	t.base = point{place: *at}
	for _, p := range partitions {
		if t.asked[p]--; t.asked[p] > 0 {
			continue
		}
		delete(t.asked, p)
		if _, wanted := t.wanted[p]; wanted && !g.has(t, p) {
			g.parts[p].in = append(g.parts[p].in, t)
		}
	}
}

// settle keeps where a session is as what has been handled of its partitions, so that it can go elsewhere.
func (g *progress) settle(t *track) {
	for p := range g.parts {
		if of := &g.parts[p]; slices.Contains(of.in, t) {
			of.own.join(&t.base)
		}
	}
}

// detach takes partitions from a session.
func (g *progress) detach(t *track, partitions []uint32) {
	for _, p := range partitions {
		delete(t.wanted, p)
		g.leave(t, p)
	}
}

// end takes all of them.
func (g *progress) end(t *track) {
	clear(t.wanted)
	for p := range g.parts {
		g.leave(t, uint32(p))
	}
}

func (g *progress) leave(t *track, partition uint32) {
	of := &g.parts[partition]
	if i := slices.Index(of.in, t); i >= 0 {
		of.own.join(&t.base)
		of.in = slices.Delete(of.in, i, i+1)
	}
}

// pass moves a session to where a batch ends that has been handled, as all before it.
func (g *progress) pass(t *track, to *place) { t.base.reach(to) }

// rewind moves all partitions back to a place, takes them from all sessions, and goes on in a generation. A partition that is earlier stays
// there: forward it would leave something out.
func (g *progress) rewind(to *place, generation uint64) {
	for p := range g.parts {
		at := g.at(uint32(p))
		if at.compare(to) >= 0 {
			at = point{place: *to}
		}
		g.parts[p] = part{own: at}
	}
	g.floor, g.generation = point{}, generation
}

// position returns where the client is, the zero Position while that is not known.
func (g *progress) position() Position {
	if !g.known {
		return Position{}
	}
	p := Position{cluster: g.cluster, partitions: uint32(len(g.parts)), generation: g.generation}
	return gather(p, func() func(uint32) point { return g.at })
}
