package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/wiring"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/streamer"
)

// A node is a name under which one process after the other runs.
type node struct {
	world  *world
	name   string
	lives  atomic.Pointer[[]*process]
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
	log    *oplog.Log
	run    *streamer.Node
	sink   *streamer.Shared
	member *wiring.Membership

	stop     context.CancelFunc // the soft stop
	stopping atomic.Bool
	gone     chan struct{} // closed when it is killed
	ended    chan struct{} // closed when it has ended, by itself or killed
	saves    atomic.Int64  // saves without an answer
	shunned  atomic.Bool   // the store of checkpoints does not answer it
	hoards   atomic.Bool   // it is sick, and does not give up what the plan gives to others

	mu struct {
		sync.Mutex
		sunk     map[tenure]sunken // what its sink has acknowledged since the partition was attached
		promised map[tenure]promise
		offers   map[string]map[change.Partition]int // up to where subscribers are, as the store has said last
	}
}

// A sunken is up to which event a sink has acknowledged, and up to which before that moment.
type sunken struct {
	n, before int
	at        time.Time
}

// saving is how long a process tries to save last checkpoints.
const saving = time.Second

// A promise is where a checkpoint must be when a term is handed over.
type promise struct {
	events int
	saves  int64 // if no more saves went wrong by then
	at     time.Time
}

func (p *process) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// start begins a new life of a node.
func (n *node) start() {
	w := n.world
	p := &process{
		node: n, world: w, id: fmt.Sprintf("%s/%d", n.name, len(*n.lives.Load())+1), tag: w.rand.Uint64(),
		gone: make(chan struct{}), ended: make(chan struct{}),
	}
	p.network = newNetwork(w.running, p.tag)
	p.mu.sunk, p.mu.promised, p.mu.offers = map[tenure]sunken{}, map[tenure]promise{}, map[string]map[change.Partition]int{}
	n.wanted, n.again = true, 0
	extent := oplog.NewRange(oplog.RangeConfig{Ask: w.reach})
	p.log = oplog.New(oplog.Config{
		Partitions: w.partitions, Reach: extent.Now, RingBytes: 10_000, PrefetchBytes: 5_000, Dedup: &dedup.Config{},
		Lost: func(l oplog.Loss) { w.wrong("%s finds a loss: %+v", p.id, l) },
	}, source{w.source, p.network})
	hub := delivery.New(delivery.Config{Partitions: w.partitions, CreditEvents: w.credit, Bookmark: 2 * time.Second}, p.log)
	logger := w.script.Logger().With("p", p.id)
	p.run = streamer.NewNode(streamer.NodeConfig{
		Origin: w.origin, Fingerprint: "f", By: p.id, Range: extent,
		Policy:  checkpoint.Policy{Interval: time.Second, MinInterval: 300 * time.Millisecond, EventCount: 20, IdleInterval: 5 * time.Second, MaxUnsaved: 2000},
		Overlap: time.Second, FlushTimeout: 2 * time.Second, CheckpointTimeout: saving, Logger: logger,
	}, hub, p.log, checkpoints{network: p.network, shelf: w.shelf, process: p})
	p.member = wiring.NewMembership(wiring.MembershipConfig{
		Member: cluster.Identity{Node: n.name, Process: p.id}, Partitions: w.partitions, TTL: ttl,
		Leadership: wiring.Leadership{Expected: len(w.nodes), Settle: ttl},
		Announced:  wiring.Announced{Gateway: p.id, Fingerprint: "f"},
		Moves:      wiring.Moves{Overlap: w.overlap, DrainTimeout: 2 * ttl, Announce: func(delivery.Notice) {}},
		Cluster:    store{p.network, w.roster.For(p.id), p, w}, Silence: 5 * time.Second, Node: p.run, Log: p.log, Stopping: p.stopping.Load,
		Clock: p.clock, Logger: logger,
	})
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	lives := append(slices.Clone(*n.lives.Load()), p)
	n.lives.Store(&lives)
	n.latest.Store(p)
	w.running.Go(func() {
		defer close(p.ended)
		err := p.live(ctx)
		w.forget(p)
		w.say("%s has ended: %v", p.id, err)
		if code := fault.Of(err); err != nil && code != fault.NodeTermLost && code != fault.NodeRunning && !errors.Is(err, clustertest.ErrCut) &&
			!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errAway) {
			w.wrong("%s ended with %v", p.id, err)
		}
	})
}

// everything matches all there is.
func everything() []delivery.Subscription {
	all, err := match.Compile(match.Filter{})
	if err != nil {
		panic(err)
	}
	return []delivery.Subscription{{ID: "all", Program: all}}
}

// live runs the process until it is stopped or killed.
func (p *process) live(ctx context.Context) (err error) {
	beside, stop := context.WithCancel(context.Background())
	defer stop()
	if p.sink, err = p.run.Share(beside, sink, everything()); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { p.drink(beside) })
	defer context.AfterFunc(ctx, func() { p.stopping.Store(true) })()
	return p.member.Run(ctx)
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
	fmt.Fprintf(&text, "%s: trusted %t, log %+v", p.id, p.member.Trusted(), p.log.Stats())
	for _, s := range p.run.Status() {
		fmt.Fprintf(&text, "; partition %d: %s %s", s.Partition, s.Epoch, s.State)
	}
	for _, s := range p.run.Subscribers() {
		fmt.Fprintf(&text, "; %+v", s)
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

// leap has the clock of the process jump, as if it had been suspended for so long: its lease has
// run out.
func (p *process) leap(d time.Duration) {
	p.ahead.Add(int64(d))
	p.world.roster.Expire(p.id)
}

// promises notes what must be saved when terms are handed over: what the sink had acknowledged
// before.
func (p *process) promises(all []checkpoint.Checkpoint) {
	if len(all) == 0 || all[0].Reason != checkpoint.ReasonHandoff {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, c := range all {
		if !c.Shared {
			continue
		}
		s := p.mu.sunk[tenure{c.Partition, c.Epoch}]
		if s.at.Equal(now) {
			s.n = s.before
		}
		p.mu.promised[tenure{c.Partition, c.Epoch}] = promise{events: s.n, saves: p.saves.Load(), at: now}
	}
}

// handing looks whether terms that are about to be handed over have left their checkpoints where
// they should.
func (p *process) handing(partitions []change.Partition, epochs []change.Epoch) {
	for i, q := range partitions {
		p.mu.Lock()
		promised, saved := p.mu.promised[tenure{q, epochs[i]}]
		p.mu.Unlock()
		if !saved || p.saves.Load() != promised.saves || time.Since(promised.at) > saving || p.dead() {
			continue
		}
		stands := p.world.shelf.stands(checkpoint.Key{Subscriber: sink, Shared: true, Partition: q})
		w := p.world
		w.mu.Lock()
		w.mu.figures.released++
		if n := w.mu.sunk[q].upTo(stands.Position); n < min(promised.events, w.mu.drunk[q].n) {
			w.complain("partition %d: %s hands it over at %d events, %d had been acknowledged", q, p.id, n, promised.events)
		}
		w.mu.Unlock()
	}
}

// offered notes where subscribers are as the store says.
func (p *process) offered(all []checkpoint.Checkpoint) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		offers := p.mu.offers[c.Subscriber]
		if offers == nil {
			offers = map[change.Partition]int{}
			p.mu.offers[c.Subscriber] = offers
		}
		if c.Shared {
			offers[c.Partition] = w.mu.sunk[c.Partition].upTo(c.Position)
			continue
		}
		for q := range w.partitions {
			offers[change.Partition(q)] = w.mu.keyed[q].upTo(c.In(change.Partition(q)))
		}
		offers[change.Partition(w.partitions)] = w.mu.keyed[w.partitions].upTo(c.Earliest())
	}
}

// offer returns up to which event of a partition a subscriber has everything, as the store has told
// the process last.
func (p *process) offer(subscriber string, q change.Partition) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.offers[subscriber][q]
}
