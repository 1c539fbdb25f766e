package simulation

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/match"
)

// patience is how long a gateway hears nothing before it looks for another node.
const patience = 6 * time.Second

// A gateway follows the whole log at one node after the other, and goes on where it stands.
type gateway struct {
	world *world
	name  string

	// Of its own loop.
	rand  *rand.Rand
	have  map[change.Partition]wire.Place
	had   []int // events of each partition, in their order
	acked []int

	lag    atomic.Int64  // how long it takes to acknowledge, in nanoseconds
	breaks chan struct{} // its connection breaks
	crash  atomic.Bool   // and it forgets what it knew

	mu struct {
		sync.Mutex

		done []int // so many events have been handled, by partition; a crash changes nothing about it
		row  *row  // what the cluster knows of it
	}
}

// A row is where a gateway stands as it was saved.
type row struct {
	base      change.Position
	positions map[change.Partition]change.Position
}

func newGateway(w *world, name string, seed uint64) *gateway {
	g := &gateway{
		world: w, name: name, rand: rand.New(rand.NewPCG(seed, 3)), have: map[change.Partition]wire.Place{},
		had: make([]int, w.partitions), acked: make([]int, w.partitions), breaks: make(chan struct{}, 1),
	}
	g.mu.done = make([]int, w.partitions)
	return g
}

// interrupt breaks the gateway's connection.
func (g *gateway) interrupt() {
	select {
	case g.breaks <- struct{}{}:
	default:
	}
}

// run follows the log until the context ends.
func (g *gateway) run(ctx context.Context) {
	all, err := match.Compile(match.Filter{})
	if err != nil {
		panic(err)
	}
	for ctx.Err() == nil {
		if p := g.pick(); p != nil {
			g.visit(ctx, p, all)
		}
		if g.crash.Swap(false) {
			g.forget()
		}
		pause := time.NewTimer(time.Duration(50+g.rand.IntN(400)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// pick chooses a node to go to.
func (g *gateway) pick() *process {
	n := g.world.nodes[g.rand.IntN(len(g.world.nodes))]
	if p := n.latest.Load(); p != nil && p.alive() {
		return p
	}
	return nil
}

// forget has the gateway know only what its row says.
func (g *gateway) forget() {
	g.mu.Lock()
	saved := g.mu.row
	g.mu.Unlock()
	clear(g.have)
	for p := range g.had {
		g.had[p] = 0
		if saved == nil {
			g.acked[p] = 0
			continue
		}
		at, differs := saved.positions[change.Partition(p)]
		if !differs {
			at = saved.base
		}
		g.have[change.Partition(p)] = wire.PlaceOf(at)
		g.world.mu.Lock()
		g.had[p] = g.world.upTo(change.Partition(p), at)
		g.world.mu.Unlock()
		g.acked[p] = g.had[p]
	}
}

// A seat is a session as its gateway sees it.
type seat struct {
	gateway *gateway
	process *process
	session *fanout.Session
	unacked []sent
	last    []int // the event that came last in this session, by partition, or had before it
	known   []int // events that the gateway had before the session

	mu struct {
		sync.Mutex

		acked []int
		own   []int // of those, the ones that came in this session; of what came before it the node knows the time only
		live  bool  // was told so by a bookmark
	}
}

type sent struct {
	batch *wire.Batch
	due   time.Time
	had   int
}

// at returns how many events of a partition have been acknowledged in the session, as the node knows.
func (s *seat) at(p change.Partition) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.own[p]
}

// holds returns how many events the gateway has where the session is known to be on the live path for good, else -1.
func (s *seat) holds(p change.Partition) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.live {
		return -1
	}
	return s.mu.acked[p]
}

// visit has a session at a process until something ends it.
func (g *gateway) visit(ctx context.Context, p *process, all *match.Program) {
	cfg := fanout.SessionConfig{Gateway: g.name, Have: maps.Clone(g.have), Start: change.At(change.Timestamp{T: 1001, I: 1})}
	if len(g.have) > 0 {
		first := change.Timestamp{T: 1 << 31}
		for _, place := range g.have {
			if place.Time().Compare(first) < 0 {
				first = place.Time()
			}
		}
		cfg.Start = change.At(first)
	}
	visiting, leave := context.WithCancel(ctx)
	defer leave()
	copy(g.acked, g.had) // what it goes on behind it has
	s := &seat{gateway: g, process: p, last: slices.Clone(g.had), known: slices.Clone(g.had)}
	s.mu.acked, s.mu.own = slices.Clone(g.acked), make([]int, len(g.acked))
	var err error
	if s.session, err = p.hub.Open(context.Background(), cfg, []fanout.Subscription{{ID: "all", Program: all}}); err != nil {
		return
	}
	g.world.count(func(f *figures) { f.sessions++ })
	p.sit(s)
	g.world.running.Go(func() { // the node notices sooner or later that nobody is there
		select {
		case <-visiting.Done():
			p.pass()
		case <-s.session.Done():
			leave()
		}
		s.session.Close(nil)
		if _, _, err := s.session.Receive(context.Background()); fault.Of(err) != fault.NodeStopping {
			p.rise(s) // one that the node's own stop has closed goes on to hold marks
		}
	})
	g.world.running.Go(func() {
		select {
		case <-p.gone:
			leave()
		case <-visiting.Done():
		}
	})
	s.follow(visiting)
}

// follow takes and acknowledges until the connection breaks.
func (s *seat) follow(ctx context.Context) {
	g, p := s.gateway, s.process
	heard, saved := time.Now(), time.Now()
	for ctx.Err() == nil && !p.dead() {
		select {
		case <-g.breaks:
			return
		default:
		}
		if !s.outlast(ctx, heard) {
			return
		}
		wait, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		batches, _, err := s.session.Receive(wait)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return
		}
		for _, b := range batches {
			p.pass()
			if p.hub.Err() != nil || p.dead() {
				return
			}
			heard = time.Now()
			s.take(b)
		}
		if time.Since(heard) > patience || !s.acknowledge() {
			return
		}
		if time.Since(saved) > time.Second && p.still() == nil {
			saved = time.Now()
			s.save(ctx)
		}
	}
}

// outlast waits until the process goes on, or there is no more patience with it.
func (s *seat) outlast(ctx context.Context, heard time.Time) bool {
	gate := s.process.still()
	if gate == nil {
		return true
	}
	timer := time.NewTimer(patience - time.Since(heard))
	defer timer.Stop()
	select {
	case <-gate:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// take takes a batch as the protocol says.
func (s *seat) take(b *wire.Batch) {
	g, w, p := s.gateway, s.process.world, b.Partition
	if !s.process.mayHandOut() {
		w.wrong("%s: %s hands out %d events although it is not trusted", g.name, s.process.id, len(b.Events))
	}
	have, known := g.have[p]
	if known && bytes.Compare(b.From.Head[:], have.Head[:]) > 0 {
		w.wrong("%s: partition %d: a hole between %x and %x", g.name, p, have.Head, b.From.Head)
	}
	if b.Loss != nil {
		w.wrong("%s: partition %d: %s tells of a loss: %+v", g.name, p, s.process.id, *b.Loss)
	}
	if len(b.Events) == 0 && b.To.Compare(b.From) > 0 && w.credit == 1<<20 {
		s.mu.Lock()
		s.mu.live = true // only there is it told so
		s.mu.Unlock()
	}
	for i := range b.Events {
		s.handle(p, &b.Events[i])
	}
	if !known || bytes.Compare(b.To.Head[:], have.Head[:]) >= 0 {
		to := b.To
		if known && to.Head == have.Head {
			to.Hashes = slices.Concat(to.Hashes, slices.DeleteFunc(slices.Clone(have.Hashes), func(h [16]byte) bool { return slices.Contains(to.Hashes, h) }))
		}
		g.have[p] = to
	}
	s.unacked = append(s.unacked, sent{b, time.Now().Add(time.Duration(g.lag.Load())), s.last[p]})
}

// handle handles one event: what was had before may come again, nothing may be left out.
func (s *seat) handle(p change.Partition, e *wire.Event) {
	g, w := s.gateway, s.process.world
	w.mu.Lock()
	at, known := w.mu.index[p][identity{e.Head, e.Hash}]
	switch last := s.last[p]; {
	case !known:
		w.complain("%s: partition %d: an event that nobody has written", g.name, p)
	case at > max(last, g.had[p]):
		w.complain("%s: partition %d: event %d comes from %s, %d was to come", g.name, p, at, s.process.id, max(last, g.had[p]))
	case at < last && last > s.known[p]:
		w.complain("%s: partition %d: event %d comes from %s after %d", g.name, p, at, s.process.id, last-1)
	}
	if at < g.had[p] {
		w.mu.figures.repeated++
	}
	w.mu.Unlock()
	s.last[p], g.had[p] = at+1, max(g.had[p], at+1)
	g.mu.Lock()
	g.mu.done[p] = max(g.mu.done[p], at+1)
	g.mu.Unlock()
}

// acknowledge acknowledges what is due, and reports whether the session goes on.
func (s *seat) acknowledge() bool {
	g := s.gateway
	for len(s.unacked) > 0 && !time.Now().Before(s.unacked[0].due) && s.process.still() == nil && !s.process.dead() {
		first := s.unacked[0]
		s.unacked = s.unacked[1:]
		p := first.batch.Partition
		s.mu.Lock()
		s.mu.acked[p] = max(s.mu.acked[p], first.had)
		if len(first.batch.Events) > 0 {
			s.mu.own[p] = first.had
		}
		s.mu.Unlock()
		g.acked[p] = max(g.acked[p], first.had)
		if err := s.session.Ack(p, first.batch.To); err != nil {
			s.process.world.wrong("%s: partition %d: %s does not take an acknowledgement: %v", g.name, p, s.process.id, err)
			return false
		}
	}
	return true
}

// save saves the gateway's row, as the node does that it is connected to.
func (s *seat) save(ctx context.Context) {
	g, w := s.gateway, s.process.world
	base, positions, ok := s.session.Standing()
	if !ok || base.IsZero() {
		return
	}
	base, positions = base.Clone(), maps.Clone(positions)
	w.mu.Lock()
	for p := range change.Partition(w.partitions) {
		at, differs := positions[p]
		if !differs {
			at = base
		}
		if n := w.upTo(p, at); n > g.acked[p] {
			w.complain("%s: partition %d: its row at %s says %d events, it has acknowledged %d", g.name, p, s.process.id, n, g.acked[p])
		}
	}
	w.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_ = s.process.call(within, func(context.Context) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mu.row = &row{base, positions}
		return nil
	})
}

// sit and rise have the process know its sessions.
func (p *process) sit(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.seats[s] = struct{}{}
}

func (p *process) rise(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.seats, s)
}
