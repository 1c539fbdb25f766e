package clustertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// ErrCut is the error of calls by a node that is cut off from the store, or whose reply was lost.
var ErrCut = errors.New("the store cannot be reached")

// ElectionTTL is how long a leader that is cut off remains elected, unless SetElectionTTL says
// otherwise.
const ElectionTTL = 10 * time.Second

// A Memory is the store of one cluster, seen by all its nodes. Every write has a revision of its
// own; the epoch of a claim is of incarnation 1 and its revision. It runs no goroutines, only a
// timer.
type Memory struct {
	partitions int
	clock      func() time.Duration

	mu struct {
		sync.Mutex

		revision int64
		leases   []*lease // in the order in which they were granted
		seats    map[string]*member
		owners   []owner
		plan     cluster.Plan
		pins     map[change.Partition]pin
		drains   map[string]cluster.Drain
		queue    []*leadership // the candidates; the first is elected
		hints    map[*hints]struct{}
		callers  map[string]*caller // the live process of each node
		cut      map[string]bool
		mute     map[string]bool
		blind    map[string]error

		unclaimable map[string]error
		election    time.Duration
		alarm       *time.Timer // for the next lease to run out
	}
}

// A caller is a process of a node, which Kill ends.
type caller struct {
	node string
	dead bool
}

// A lease ends when the clock has reached until, unless that is never.
type lease struct {
	of    *caller
	until time.Duration
	over  bool
}

const never = time.Duration(1<<63 - 1)

type member struct {
	cluster.Member

	lease *lease
}

type owner struct {
	cluster.Owner

	lease *lease
}

// NewMemory makes an empty store. Leases expire by clock, which belongs to the store, not to its
// nodes; nil is Go's own. A timer detects expired leases; with a clock that timers do not follow,
// call Sweep.
func NewMemory(partitions int, clock func() time.Duration) *Memory {
	if clock == nil {
		began := time.Now()
		clock = func() time.Duration { return time.Since(began) }
	}
	m := &Memory{partitions: partitions, clock: clock}
	m.mu.revision = 1
	m.mu.seats = make(map[string]*member)
	m.mu.owners = make([]owner, partitions)
	m.mu.pins = make(map[change.Partition]pin)
	m.mu.drains = make(map[string]cluster.Drain)
	m.mu.hints = make(map[*hints]struct{})
	m.mu.callers = make(map[string]*caller)
	m.mu.cut = make(map[string]bool)
	m.mu.mute = make(map[string]bool)
	m.mu.blind = make(map[string]error)
	m.mu.unclaimable = make(map[string]error)
	m.mu.election = ElectionTTL
	return m
}

// For returns the store as a node reaches it.
func (m *Memory) For(node string) cluster.Store { return m.reach(node) }

func (m *Memory) reach(node string) view {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.callers[node] == nil {
		m.mu.callers[node] = &caller{node: node}
	}
	return view{m, m.mu.callers[node]}
}

// Kill ends a node's process: the store that For returned for it fails from now on with ErrCut, and
// its leases expire. The next For is for the next process.
func (m *Memory) Kill(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	if c := m.mu.callers[node]; c != nil {
		c.dead = true
		delete(m.mu.callers, node)
		m.prolong(node)
	}
	m.elect()
	m.arm()
}

// Cut cuts a node off, or reconnects it. While it is cut off its calls fail at once with ErrCut,
// its leadership is not extended, and it gets no hints.
func (m *Memory) Cut(node string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	if m.mu.cut[node] == cut {
		return
	}
	m.mu.cut[node] = cut
	m.prolong(node)
	for h := range m.mu.hints {
		if h.of.node == node {
			m.tell(h)
		}
	}
	m.elect()
	m.arm()
}

// prolong extends a node's leaderships while it reaches the store, and lets them expire otherwise.
func (m *Memory) prolong(node string) {
	for _, l := range m.mu.queue {
		switch {
		case l.of.node != node:
		case m.reaches(l.of) && !l.resigned:
			l.lease.until = never
		case l.lease.until == never:
			l.lease.until = m.clock() + m.mu.election
		}
	}
}

func (m *Memory) reaches(c *caller) bool { return !c.dead && !m.mu.cut[c.node] }

// tell sends a hint unless its node is cut off.
func (m *Memory) tell(h *hints) {
	if m.reaches(h.of) {
		h.signal()
	}
}

// Blind makes a node's views fail with an error, until it is called with nil. Other calls succeed.
func (m *Memory) Blind(node string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.blind[node] = why
}

// RefuseClaims makes the claims of a node fail with an error, or ends that with nil. Its other
// calls succeed.
func (m *Memory) RefuseClaims(node string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.unclaimable[node] = why
}

// Mute lets the next write of a node succeed, but loses its reply.
func (m *Memory) Mute(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.mute[node] = true
}

// Expire ends all leases of a node, as if they had expired.
func (m *Memory) Expire(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range slices.Clone(m.mu.leases) {
		if l.of.node == node {
			m.end(l)
		}
	}
	m.arm()
}

// Garble makes a member's heartbeat unreadable until its next one.
func (m *Memory) Garble(member string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.seats[member]; s != nil {
		s.Heartbeat = cluster.Heartbeat{Node: member}
		s.Garbled = errors.New("garbled")
		s.Beat = m.wrote()
	}
}

// Revision returns the revision of the last write.
func (m *Memory) Revision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	return m.mu.revision
}

// SetElectionTTL sets how long leaders that are cut off from now on remain elected.
func (m *Memory) SetElectionTTL(ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.election = ttl
}

// Within calls do atomically, with the current owners by partition, like a transaction that
// compares them. do must not call the store.
func (m *Memory) Within(do func(owners []cluster.Owner)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	owners := make([]cluster.Owner, len(m.mu.owners))
	for p, o := range m.mu.owners {
		owners[p] = o.Owner
	}
	do(owners)
	m.arm()
}

// Sweep reads the clock, and ends the expired leases.
func (m *Memory) Sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	m.arm()
}

// call runs a node's call under the mutex.
func (m *Memory) call(ctx context.Context, of *caller, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	if !m.reaches(of) {
		return ErrCut
	}
	before := m.mu.revision
	err := do()
	m.arm()
	if m.mu.mute[of.node] && m.mu.revision != before {
		delete(m.mu.mute, of.node)
		return ErrCut
	}
	return err
}

// wrote gives a write its revision, and sends hints.
func (m *Memory) wrote() int64 {
	m.mu.revision++
	for h := range m.mu.hints {
		m.tell(h)
	}
	return m.mu.revision
}

func (m *Memory) grant(of *caller, until time.Duration) *lease {
	l := &lease{of: of, until: until}
	m.mu.leases = append(m.mu.leases, l)
	return l
}

// sweep ends the expired leases.
func (m *Memory) sweep() {
	now := m.clock()
	for _, l := range slices.Clone(m.mu.leases) {
		if l.until <= now {
			m.end(l)
		}
	}
}

// end ends a lease with everything under it, in one write if there is anything.
func (m *Memory) end(l *lease) {
	if l.over {
		return
	}
	l.over = true
	m.mu.leases = slices.DeleteFunc(m.mu.leases, func(other *lease) bool { return other == l })
	found := false
	for node, s := range m.mu.seats {
		if s.lease == l {
			delete(m.mu.seats, node)
			found = true
		}
	}
	for p, o := range m.mu.owners {
		if o.lease == l {
			m.mu.owners[p] = owner{}
			found = true
		}
	}
	for p, pin := range m.mu.pins {
		if pin.lease == l {
			delete(m.mu.pins, p)
			found = true
		}
	}
	for _, c := range slices.Clone(m.mu.queue) {
		if c.lease == l {
			m.mu.queue = slices.DeleteFunc(m.mu.queue, func(other *leadership) bool { return other == c })
			close(c.lost)
			found = true
		}
	}
	if found {
		m.wrote()
	}
	m.elect()
}

// elect tells the first candidate that it is elected, unless it is cut off.
func (m *Memory) elect() {
	if len(m.mu.queue) == 0 {
		return
	}
	if l := m.mu.queue[0]; !l.told && m.reaches(l.of) {
		l.told = true
		close(l.elected)
	}
}

// arm sets the timer to the next expiry of a lease.
func (m *Memory) arm() {
	next := never
	for _, l := range m.mu.leases {
		next = min(next, l.until)
	}
	if m.mu.alarm != nil {
		m.mu.alarm.Stop()
	}
	if next != never {
		m.mu.alarm = time.AfterFunc(max(next-m.clock(), 0), m.Sweep)
	}
}

func (m *Memory) seat(member string) (s *member, held bool) {
	s, held = m.mu.seats[member]
	return s, held
}

func (m *Memory) owned(p change.Partition) bool { return m.mu.owners[p].lease != nil }
