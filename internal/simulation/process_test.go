package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/govern"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/cluster/rostertest"
	"github.com/mongostream/streamer/cluster/share"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/streamer"
)

// A node is a name under which one process after the other runs.
type node struct {
	world  *world
	name   string
	lives  []*process
	latest atomic.Pointer[process]
	wanted bool          // its process is started again when it ends
	again  time.Duration // when, 0 before it has been seen to have ended
}

// A process is one life of a node.
type process struct {
	node  *node
	world *world
	id    string
	tag   uint64 // the process's own seed

	*network
	ahead  atomic.Int64 // how far its clock is ahead of the stores', in nanoseconds
	log    *lane.Log
	hub    *fanout.Hub
	run    *streamer.Node
	sink   *delivery.Session
	share  *share.Share
	leader *govern.Leader
	said   instant // when it last said that it is trusted

	stop  context.CancelFunc // the soft stop
	gone  chan struct{}      // closed when it is killed
	ended chan struct{}      // closed when it has ended, by itself or killed
	saves atomic.Int64       // saves of marks without an answer
	open  atomic.Bool        // its log has been open

	markless atomic.Bool // the marks do not answer it
	hoards   atomic.Bool // it is sick, and does not give up what it is asked to

	mu struct {
		sync.Mutex

		serving  map[change.Partition]change.Term
		sunk     map[tenure]int // how many events its sink has acknowledged under a term
		promised map[tenure]promise
		seats    map[*seat]struct{}
		hoard    []change.Term
	}
}

// saving is how long a process tries to save last marks.
const saving = time.Second

// A promise is where a mark must stand when a term has been given up.
type promise struct {
	mark  int   // so many events
	saves int64 // if no more saves went wrong by then
	at    time.Time
}

// start begins a new life of a node.
func (n *node) start() {
	w := n.world
	p := &process{
		node: n, world: w, id: fmt.Sprintf("%s/%d", n.name, len(n.lives)+1), tag: w.rand.Uint64(),
		gone: make(chan struct{}), ended: make(chan struct{}),
	}
	p.network = newNetwork(w.running, p.tag)
	p.mu.serving, p.mu.sunk, p.mu.promised, p.mu.seats = map[change.Partition]change.Term{}, map[tenure]int{}, map[tenure]promise{}, map[*seat]struct{}{}
	n.wanted, n.again = true, 0
	p.log = lane.NewLog(lane.Config{Partitions: w.partitions, RingBytes: 10_000, PrefetchBytes: 5_000}, source{w.source, p.network})
	p.hub = fanout.New(fanout.Config{
		Partitions: w.partitions, CreditEvents: w.credit, Bookmark: 2 * time.Second, Trusted: p.trusted,
		JSON: func(b, doc []byte) ([]byte, error) { return append(b, doc...), nil }, Epoch: func(q change.Partition) change.Epoch { return p.run.Epoch(q) },
	}, p.log)
	origin := checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: w.partitions, Start: change.Timestamp{T: 1001, I: 1}}
	p.run = streamer.NewNode(streamer.Config{
		Origin: origin, Fingerprint: "f", By: p.id, Surveyor: w, Readers: readers{p.hub, w.breaks}, Dedup: &dedup.Config{},
		Policy:       checkpoint.Policy{Interval: time.Second, MinGap: 300 * time.Millisecond, EventCount: 20},
		FlushTimeout: 2 * time.Second, CheckpointTimeout: saving,
	}, p.log, marks{network: p.network, shelf: w.marks, process: p, errors: &p.saves})
	p.sink = delivery.NewSession(delivery.Config{CreditEvents: 1 + w.rand.IntN(100)})
	if err := p.run.Attach(p.sink); err != nil {
		panic(err)
	}
	logger := w.script.Logger().With("p", p.id)
	members := store{p.network, w.roster.For(p.id), w}
	p.share = share.New(share.Config{
		Member: cluster.Member{Node: n.name, Process: p.id}, TTL: ttl, Report: p.report, Resume: p.resume, Release: p.release, Detached: p.detached,
		Clock: p.clock, Log: logger,
	}, members)
	p.leader = govern.NewLeader(govern.Config{
		Node: n.name, Partitions: w.partitions, Expected: len(w.nodes), Settle: ttl, TTL: ttl, Trusted: p.share.Trusted, Clock: p.clock, Log: logger,
	}, members)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	n.lives = append(n.lives, p)
	n.latest.Store(p)
	w.running.Go(func() {
		defer close(p.ended)
		err := p.live(ctx)
		p.mu.Lock()
		clear(p.mu.serving)
		p.mu.Unlock()
		w.forget(p)
		w.say("%s has ended: %v", p.id, err)
		if code := fault.Of(err); err != nil && code != fault.NodeTermLost && code != fault.NodeRunning && !errors.Is(err, rostertest.ErrCut) &&
			!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errAway) {
			w.wrong("%s ended with %v", p.id, err)
		}
	})
}

// live runs the process until it is stopped or killed.
func (p *process) live(ctx context.Context) error {
	beside, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.hub.Run(beside); err != nil {
			p.world.wrong("%s: the hub ends with %v", p.id, err)
		}
	})
	wg.Go(func() { p.giveBack(beside) })
	wg.Go(func() { p.drink(beside) })
	defer wg.Wait()
	defer stop()
	return p.share.Run(ctx, p.serve)
}

// serve is what the wiring does with a share.
func (p *process) serve(ctx context.Context) error {
	leading, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.leader.Run(leading) }()
	err := p.run.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// kill makes an end of the process: it does nothing more that others can see.
func (p *process) kill() {
	p.die()
	close(p.gone) // before its terms are forgotten: whoever finds none sees why
	p.world.forget(p)
	p.world.roster.Kill(p.id)
	p.stop()
}

// alive reports whether the process has neither been killed nor ended.
func (p *process) alive() bool {
	select {
	case <-p.gone:
		return false
	case <-p.ended:
		return false
	default:
		return true
	}
}

// String says how the process does.
func (p *process) String() string {
	var text strings.Builder
	text.WriteString(fmt.Sprintf("%s: trusted %t, log %+v, outstanding %d", p.id, p.share.Trusted(), p.log.Stats(), p.sink.Outstanding()))
	for _, s := range p.run.Status() {
		text.WriteString(fmt.Sprintf("; partition %d: %s %s", s.Partition, s.Epoch, s.State))
	}
	return text.String()
}

// dead reports whether the process has been killed.
func (p *process) dead() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *process) clock() time.Duration { return p.world.now() + time.Duration(p.ahead.Load()) }

// leap has the clock of the process jump, as if it had been suspended for so long: its lease has run out.
func (p *process) leap(d time.Duration) {
	p.ahead.Add(int64(d))
	p.said.set(time.Time{})
	p.world.unsaid(p)
	p.world.roster.Expire(p.id)
}

// trusted is what the hub asks.
func (p *process) trusted() bool {
	if p.world.breaks.trust {
		return true
	}
	ok := p.share.Trusted()
	if ok {
		p.said.set(time.Now())
	}
	return ok
}

// mayHandOut reports whether the process may hand something out now, or knew a moment ago, in the same instant, that it may.
func (p *process) mayHandOut() bool { return p.share.Trusted() || p.said.isNow() }

func (p *process) report() roster.Heartbeat {
	open := p.log.Stats().Open
	if open {
		p.open.Store(true)
	}
	h := roster.Heartbeat{Status: roster.Healthy, Count: p.world.partitions}
	if p.open.Load() {
		h.Checks = map[string]bool{
			roster.CheckMongoDB: open, roster.CheckEtcd: true, roster.CheckCheckpoint: !p.run.MarksFailing(), roster.CheckGateway: true,
		}
	}
	switch {
	case !p.open.Load():
		h.Status = roster.Starting
	case !open, p.run.MarksFailing():
		h.Status = roster.Degraded
	}
	if p.hoards.Load() {
		h.Status = roster.Unhealthy
	}
	for _, s := range p.run.Status() {
		h.Held = append(h.Held, roster.Held{Partition: s.Partition, Epoch: s.Epoch, Rate: s.Rate, State: string(s.State)})
		h.Load.Rate += s.Rate
	}
	return h
}

// resume hands terms to the node, each with a witness to what is asked of it.
func (p *process) resume(ctx context.Context, terms []change.Term) error {
	witnessed := make([]change.Term, len(terms))
	for i, term := range terms {
		witnessed[i] = term
		witnessed[i].Trusted = func() bool { return p.world.breaks.trust || p.world.witness(term) }
	}
	p.world.begun(p, terms)
	if err := p.run.Serve(ctx, witnessed); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, term := range terms {
		p.mu.serving[term.Partition] = term
	}
	return nil
}

func (p *process) detached(cause error) {
	p.world.count(func(f *figures) { f.detached++ })
	p.hub.Detach(cause)
}

// release gives terms up, and notes what must have been saved then: what its own sink and all its sessions have acknowledged by now.
func (p *process) release(terms []change.Term) {
	if p.hoards.Load() {
		p.mu.Lock()
		p.mu.hoard = append(p.mu.hoard, terms...)
		p.mu.Unlock()
		return
	}
	for _, term := range terms {
		key := tenure{term.Partition, term.Epoch}
		p.mu.Lock()
		mark := p.mu.sunk[key]
		for s := range p.mu.seats {
			if at := s.at(term.Partition); at < mark {
				mark = at
			}
		}
		p.mu.promised[key] = promise{mark: mark, saves: p.saves.Load(), at: time.Now()}
		p.mu.Unlock()
	}
	p.run.Release(terms)
}

// cure lets a sick process give up what it was asked to.
func (p *process) cure() {
	p.hoards.Store(false)
	p.mu.Lock()
	terms := p.mu.hoard
	p.mu.hoard = nil
	p.mu.Unlock()
	p.release(terms)
}

// giveBack tells the share which terms the node serves no longer, as the wiring does.
func (p *process) giveBack(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, s := range p.run.Status() {
			if s.Failure != nil {
				p.world.wrong("%s: partition %d has stopped: %v", p.id, s.Partition, s.Failure)
			}
		}
		for _, term := range p.notServed() {
			p.kept(term)
			p.share.Ended(term)
		}
	}
}

// notServed removes and returns the terms that are not served.
func (p *process) notServed() (ended []change.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q, term := range p.mu.serving {
		if p.run.Epoch(q) != term.Epoch {
			delete(p.mu.serving, q)
			ended = append(ended, term)
		}
	}
	return ended
}

// kept looks whether a term that has been given up has left its mark where it should.
func (p *process) kept(term change.Term) {
	p.mu.Lock()
	promised, released := p.mu.promised[tenure{term.Partition, term.Epoch}]
	p.mu.Unlock()
	if !released || term.Err() != nil || p.saves.Load() != promised.saves || time.Since(promised.at) > saving || p.dead() {
		return
	}
	at := p.world.marks.mark(term.Partition).Position
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.figures.released++
	if n := w.upTo(term.Partition, at); n < promised.mark {
		w.complain("partition %d: %s gave it up at %d events, %d had been acknowledged", term.Partition, p.id, n, promised.mark)
	}
}

// seats returns the sessions of gateways.
func (p *process) seats() iter.Seq[*seat] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Keys(maps.Clone(p.mu.seats))
}

// witness asks a term whether it is trusted, and notes that it says so.
func (w *world) witness(term change.Term) bool {
	ok := term.Trusted()
	if ok {
		w.mu.Lock()
		t := w.mu.terms[tenure{term.Partition, term.Epoch}]
		w.mu.Unlock()
		if t != nil {
			t.said.set(time.Now())
		}
	}
	return ok
}

// unsaid forgets what the terms of a process have said.
func (w *world) unsaid(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.mu.terms {
		if t.process == p {
			t.said.set(time.Time{})
		}
	}
}
