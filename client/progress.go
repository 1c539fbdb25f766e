package client

import "slices"

// A progress is how far a client has handled the partitions of a cluster. The position of a
// partition is the latest of three: the floor, its own point (which advances change by change), and
// the bases of the sessions that have it (which advance batch by batch). Only rewind moves it back.
type progress struct {
	cluster    string
	generation uint64
	known      bool  // the floor is set
	floor      point // of all partitions
	parts      []part
	documents  tally // with AckManual
}

type part struct {
	own point
	in  []*track // the sessions that have it; two during a handoff
}

// A track is the progress of a session: everything up to base has been handled in each partition
// that it has.
type track struct {
	base   point
	wanted map[uint32]bool   // partitions that the session should have, and whether they have been requested
	asked  map[uint32]int    // number of unanswered requests by partition; nil if the session has all partitions
	ended  map[uint32]uint64 // the batch from which on the session does not have a partition, until it is attached again
	waits  *place            // the place of a change of all partitions at which the session waits for others; nil if it does not
}

func newProgress(cluster string, partitions uint32) progress {
	return progress{cluster: cluster, parts: make([]part, partitions), documents: tally{of: new(owner)}}
}

// restore converts a Position to a progress.
func restore(p Position) progress {
	g := newProgress(p.cluster, p.partitions)
	g.generation = p.generation
	g.known = true
	g.floor = p.rest
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

// sawAll reports whether the change at a place has been handled in every partition.
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

// at returns the point of a partition.
func (g *progress) at(partition uint32) point {
	at := g.floor
	of := &g.parts[partition]
	at.join(&of.own)
	for _, t := range of.in {
		at.join(&t.base)
	}
	return at
}

// reach advances a partition to a handled change.
func (g *progress) reach(partition uint32, p *place) { g.parts[partition].own.reach(p) }

// reachAll advances all partitions to a handled change of all partitions, which requires that
// everything before it has been handled.
func (g *progress) reachAll(p *place) { g.floor.reach(p) }

// begin starts a session at a place, which becomes the floor if none is known. The session has all
// partitions, or none.
func (g *progress) begin(t *track, at *place, all bool) {
	if !g.known {
		g.known = true
		g.floor.reach(at)
	}
	t.base = point{place: *at}
	if !all {
		t.wanted, t.asked, t.ended = make(map[uint32]bool), make(map[uint32]int), make(map[uint32]uint64)
		return
	}
	for partition := range g.parts {
		g.parts[partition].in = append(g.parts[partition].in, t)
	}
}

// want adds partitions that the session should have and must request.
func (t *track) want(partitions []uint32) {
	for _, p := range partitions {
		t.wanted[p] = false
	}
}

// has reports whether the session has a partition.
func (g *progress) has(t *track, partition uint32) bool {
	return slices.Contains(g.parts[partition].in, t)
}

// attach adds partitions to a session, beginning at a place, with a batch. Partitions that were
// detached or requested again since the request are not added.
func (g *progress) attach(t *track, partitions []uint32, at *place, seq uint64) {
	g.settle(t)
	t.base = point{place: *at}
	for _, p := range partitions {
		if t.asked[p]--; t.asked[p] > 0 {
			continue
		}
		delete(t.asked, p)
		if seq < t.ended[p] {
			continue // the node has ended it since
		}
		delete(t.ended, p)
		if t.wanted[p] && !g.has(t, p) { // otherwise it must be requested again
			g.parts[p].in = append(g.parts[p].in, t)
		}
	}
}

// settle saves the base of a session in its partitions, so that the base can change.
func (g *progress) settle(t *track) {
	for p := range g.parts {
		if of := &g.parts[p]; slices.Contains(of.in, t) {
			of.own.join(&t.base)
		}
	}
}

// detach removes partitions from a session.
func (g *progress) detach(t *track, partitions []uint32) {
	for _, p := range partitions {
		delete(t.wanted, p)
		g.leave(t, p)
	}
}

// withdraw removes partitions from a session whose node does not deliver them from a batch on.
func (g *progress) withdraw(t *track, partitions []uint32, seq uint64) {
	g.detach(t, partitions)
	for _, p := range partitions {
		t.ended[p] = seq
	}
}

// end removes all partitions from a session.
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

// pass advances a session to the end of a batch that, with all before it, has been handled.
func (g *progress) pass(t *track, to *place) { t.base.reach(to) }

// rewind moves all partitions back to a place, removes them from all sessions, and sets the
// generation. Partitions at an earlier place stay there, because moving forward would skip changes.
func (g *progress) rewind(to *place, generation uint64) {
	for p := range g.parts {
		at := g.at(uint32(p))
		if at.compare(to) >= 0 {
			at = point{place: *to}
		}
		g.parts[p] = part{own: at}
	}
	g.floor = point{}
	g.generation = generation
}

// count numbers a batch that has been handled if it has documents of a snapshot.
func (g *progress) count(b *batch) (number uint64) {
	if !b.documents {
		return 0
	}
	g.documents.batches++
	return g.documents.batches
}

// position returns the position, or the zero Position while it is unknown.
func (g *progress) position() Position {
	if !g.known {
		return Position{}
	}
	p := Position{cluster: g.cluster, partitions: uint32(len(g.parts)), generation: g.generation, documents: g.documents}
	return gather(p, func() func(uint32) point { return g.at })
}
