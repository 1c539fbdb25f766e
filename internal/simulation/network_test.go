package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
)

// A network is what lies between one process and the stores. What was sent is carried out, whatever
// becomes of who sent it.
type network struct {
	running *sync.WaitGroup

	mu struct {
		sync.Mutex

		rand *rand.Rand
		slow time.Duration // what a way takes at most
		cut  bool          // requests are lost
		deaf bool          // answers are lost
		mute int           // so many answers more are lost
		dead bool
		gate chan struct{} // the process stands still until it is closed; nil while it does not
	}
}

const usual = 20 * time.Millisecond // what a way through the network takes at most

func newNetwork(running *sync.WaitGroup, seed uint64) *network {
	n := &network{running: running}
	n.mu.rand, n.mu.slow = rand.New(rand.NewPCG(seed, 2)), usual
	return n
}

// set changes how the network is.
func (n *network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// freeze has the process stand still wherever it looks at the world around, until thaw.
func (n *network) freeze() {
	n.set(func() {
		if n.mu.gate == nil && !n.mu.dead {
			n.mu.gate = make(chan struct{})
		}
	})
}

func (n *network) thaw() {
	n.set(func() {
		if n.mu.gate != nil {
			close(n.mu.gate)
			n.mu.gate = nil
		}
	})
}

// die makes an end of the process: nothing that it sends from now on arrives.
func (n *network) die() {
	n.set(func() { n.mu.dead = true })
	n.thaw()
}

// still returns a channel that is closed when the process goes on, nil while it does not stand
// still.
func (n *network) still() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.gate == nil {
		return nil
	}
	return n.mu.gate
}

// pass waits while the process stands still, whoever has given up meanwhile.
func (n *network) pass() {
	for gate := n.still(); gate != nil; gate = n.still() {
		<-gate
	}
}

// A fate is what becomes of a request and of its answer.
type fate struct {
	there, back         time.Duration
	lost, unheard, dead bool
	hangs               bool // what is lost is waited for
}

func (n *network) fate() (f fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.there, f.back = time.Duration(n.mu.rand.Int64N(int64(n.mu.slow))), time.Duration(n.mu.rand.Int64N(int64(n.mu.slow)))
	f.lost, f.unheard, f.dead, f.hangs = n.mu.cut, n.mu.deaf, n.mu.dead, n.mu.rand.IntN(2) == 0
	if n.mu.mute > 0 && !f.lost {
		n.mu.mute--
		f.unheard = true
	}
	return f
}

// cutOff reports whether nothing gets through now.
func (n *network) cutOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.cut || n.mu.dead
}

// call sends a request and waits for its answer, or until the context ends.
func (n *network) call(ctx context.Context, do func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n.pass()
	f := n.fate()
	if f.dead || f.lost && !f.hangs {
		return clustertest.ErrCut
	}
	answer := make(chan error, 1)
	n.running.Go(func() {
		nap(f.there)
		if f.lost || n.cutOff() {
			return
		}
		err := do(context.WithoutCancel(ctx))
		nap(f.back)
		switch {
		case !f.unheard:
			answer <- err
		case !f.hangs:
			answer <- clustertest.ErrCut
		}
	})
	defer n.pass()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A store is the roster as a process reaches it.
type store struct {
	*network

	cluster.Store
	process *process
	world   *world
}

// View implements [cluster.Store]. A process that hoards, and does not lead, sees an old plan, in
// which everything that it has is its own.
func (s store) View(ctx context.Context) (v cluster.View, err error) {
	v, err = asked(ctx, s.network, s.Store.View)
	if err == nil && s.process.hoards.Load() && v.Leader != s.process.node.name {
		for p, o := range v.Owners {
			if o.Process == s.process.id && p < len(v.Plan.Owners) {
				v.Plan.Owners[p] = s.process.node.name
			}
		}
	}
	return v, err
}

// asked sends a request that is answered with a value.
func asked[T any](ctx context.Context, n *network, do func(context.Context) (T, error)) (T, error) {
	answers := make(chan T, 1)
	err := n.call(ctx, func(ctx context.Context) error {
		answer, err := do(ctx)
		answers <- answer
		return err
	})
	var none T
	if err != nil {
		return none, err
	}
	return <-answers, nil
}

// Join implements [cluster.Store]. It takes several requests, of which the last does nothing where
// a later Join has come before it.
func (s store) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	m, err := asked(ctx, s.network, func(context.Context) (cluster.Membership, error) { return s.Store.Join(ctx, first, ttl) })
	if err != nil {
		return nil, err
	}
	return membership{s.network, m, s.process}, nil
}

// Campaign implements [cluster.Store].
func (s store) Campaign(ctx context.Context, node string) (cluster.Leadership, error) {
	s.pass()
	l, err := s.Store.Campaign(ctx, node)
	s.pass()
	if err != nil {
		return nil, err
	}
	s.world.say("%s is elected", node)
	return leadership{s.network, l, s.world}, nil
}

type membership struct {
	*network

	of      cluster.Membership
	process *process
}

// Renew implements [cluster.Membership].
func (m membership) Renew(ctx context.Context) (time.Duration, error) {
	return asked(ctx, m.network, m.of.Renew)
}

// Beat implements [cluster.Membership].
func (m membership) Beat(ctx context.Context, h cluster.Heartbeat) error {
	if m.process.hoards.Load() {
		h.Status = cluster.StatusUnhealthy
	}
	return m.call(ctx, func(ctx context.Context) error { return m.of.Beat(ctx, h) })
}

// Claim implements [cluster.Membership].
func (m membership) Claim(ctx context.Context, partitions []change.Partition) ([]cluster.Owner, error) {
	return asked(ctx, m.network, func(ctx context.Context) ([]cluster.Owner, error) { return m.of.Claim(ctx, partitions) })
}

// Hand implements [cluster.Membership].
func (m membership) Transfer(ctx context.Context, to cluster.Member, partitions []change.Partition, epochs []change.Epoch) ([]cluster.Owner, error) {
	m.process.handing(partitions, epochs)
	if m.process.hoards.Load() {
		return nil, clustertest.ErrCut
	}
	return asked(ctx, m.network, func(ctx context.Context) ([]cluster.Owner, error) {
		owners, err := m.of.Transfer(ctx, to, partitions, epochs)
		for _, o := range owners {
			if o.Process == to.Process {
				m.process.world.count(func(f *figures) { f.handed++ })
			}
		}
		return owners, err
	})
}

// Give implements [cluster.Membership].
func (m membership) Return(ctx context.Context, partitions []change.Partition, epochs []change.Epoch) error {
	if m.process.hoards.Load() {
		return clustertest.ErrCut
	}
	return m.call(ctx, func(ctx context.Context) error { return m.of.Return(ctx, partitions, epochs) })
}

// Leave implements [cluster.Membership].
func (m membership) Leave(ctx context.Context) error { return m.call(ctx, m.of.Leave) }

type leadership struct {
	*network

	of    cluster.Leadership
	world *world
}

// Lost implements [cluster.Leadership].
func (l leadership) Lost() <-chan struct{} { return l.of.Lost() }

// Publish implements [cluster.Leadership].
func (l leadership) Publish(ctx context.Context, p cluster.Plan) error {
	return l.call(ctx, func(ctx context.Context) error {
		err := l.of.Publish(ctx, p)
		if err == nil {
			l.world.published(p)
		}
		return err
	})
}

// Evict implements [cluster.Leadership].
func (l leadership) Evict(ctx context.Context, p change.Partition, epoch change.Epoch) error {
	return l.call(ctx, func(ctx context.Context) error {
		l.world.evicted(p, epoch)
		return l.of.Evict(ctx, p, epoch)
	})
}

// Resign implements [cluster.Leadership].
func (l leadership) Resign(ctx context.Context) error { return l.call(ctx, l.of.Resign) }
