package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/streamer"
)

// patience is how long a client hears nothing before it looks for another node.
const patience = 6 * time.Second

// A client is an exclusive subscriber, which keeps its own position: it has one session that has
// everything, or one at each owner, to which partitions are attached.
type client struct {
	world *world
	name  string
	owned bool // it follows the owners

	// Of its own loop.
	rand       *rand.Rand
	process    string
	started    time.Time
	lives      int
	known      bool              // it knows where it is
	at         []change.Position // by partition, and last in what is of no document
	had        []int             // events of each, in their order: what comes next may be earlier, but not later
	generation uint64
	seats      map[*process]*seat
	with       map[change.Partition]*seat // who has a partition, of a client that follows the owners
	brought    chan brought
	opened     chan *seat

	// Under the world's mutex.
	acked   []tally // what it has acknowledged, in the latest generation
	rewound uint64  // that generation

	lag      atomic.Int64  // how long it takes to acknowledge, in nanoseconds
	breaks   chan struct{} // its connections break
	forgets  atomic.Bool   // and its process with them, with all that it knew
	reattach atomic.Bool   // partitions are attached once more where they are

	mu struct {
		sync.Mutex
		done []int // so many events have been handled; nothing changes that
	}
}

func newClient(w *world, name string, owned bool, seed uint64) *client {
	n := w.partitions + 1
	c := &client{
		world: w, name: name, owned: owned, rand: rand.New(rand.NewPCG(seed, 3)), at: make([]change.Position, n), had: make([]int, n), acked: make([]tally, n),
		seats: map[*process]*seat{}, with: map[change.Partition]*seat{}, brought: make(chan brought), opened: make(chan *seat), breaks: make(chan struct{}, 1),
	}
	c.mu.done = make([]int, n)
	return c
}

// interrupt breaks the client's connections.
func (c *client) interrupt() {
	select {
	case c.breaks <- struct{}{}:
	default:
	}
}

// A seat is a session as its client sees it.
type seat struct {
	client  *client
	process *process
	leave   context.CancelFunc
	session *streamer.Exclusive // nil before it is open
	refused error

	begun   bool
	heard   time.Time
	has     map[change.Partition]bool // delivers, of a client that follows the owners
	asked   map[change.Partition]int  // attachments that the node has not confirmed
	last    map[change.Partition]int  // the event that came last, and one more; none before one has come
	owed    []change.Partition        // to be detached, which the node hears before any acknowledgement after it
	unacked []sent
}

// tell has the node detach what is owed.
func (s *seat) tell() {
	if len(s.owed) == 0 || s.process.still() != nil || s.process.dead() {
		return
	}
	if err := s.session.Session().Detach(s.owed); err != nil {
		s.client.world.wrong("%s: %s detaches nothing: %v", s.client.name, s.process.id, err)
	}
	s.owed = nil
}

// A sent is a batch to be acknowledged.
type sent struct {
	seq        uint64
	due        time.Time
	generation uint64
	from, to   map[change.Partition]int
}

// brought is what a session has.
type brought struct {
	seat    *seat
	batches []*delivery.Batch
	err     error
}

// run follows the log until the context ends.
func (c *client) run(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	defer c.leaveAll()
	c.begin()
	for {
		select {
		case s := <-c.opened:
			c.open(s)
		case b := <-c.brought:
			c.take(b)
		case <-tick.C:
			c.look(ctx)
		case <-c.breaks:
			c.leaveAll()
			if c.forgets.Swap(false) {
				c.begin()
			}
		case <-ctx.Done():
			return
		}
		for _, s := range c.seats {
			s.acknowledge()
		}
	}
}

// begin begins a life of the client's process, which knows nothing.
func (c *client) begin() {
	c.lives++
	c.process, c.started, c.known, c.generation = fmt.Sprintf("%s/%d", c.name, c.lives), time.Now(), false, 0
}

func (c *client) leaveAll() {
	for _, s := range c.seats {
		c.rise(s)
	}
}

// rise leaves a session. The node hears of that later.
func (c *client) rise(s *seat) {
	s.leave()
	if c.seats[s.process] == s {
		delete(c.seats, s.process)
	}
	for p, with := range c.with {
		if with == s {
			delete(c.with, p)
		}
	}
}

// look connects where the client should be, and leaves where nothing is heard.
func (c *client) look(ctx context.Context) {
	for p, s := range c.seats {
		if p.dead() || s.begun && time.Since(s.heard) > patience {
			c.rise(s)
		}
	}
	if !c.owned {
		if len(c.seats) == 0 {
			if p := c.pick(); p != nil && c.rand.IntN(3) == 0 {
				c.sit(ctx, p)
			}
		}
		return
	}
	topology := c.topology()
	if topology.Version == 0 || !c.known && len(c.seats) > 0 && !slices.ContainsFunc(c.all(), func(s *seat) bool { return s.begun }) {
		return // the first session says where it begins
	}
	again := c.reattach.Swap(false)
	moves := map[*seat][]change.Partition{}
	for q, i := range topology.Owners {
		if i < 0 {
			continue
		}
		p := c.living(topology.Nodes[i].Address)
		if p == nil {
			continue
		}
		s := c.seats[p]
		if s == nil {
			c.sit(ctx, p)
			if !c.known {
				return
			}
			continue
		}
		if q := change.Partition(q); s.begun && (c.with[q] != s || again) {
			moves[s] = append(moves[s], q)
		}
	}
	for s, partitions := range moves {
		c.move(s, partitions)
	}
}

func (c *client) all() (all []*seat) {
	for _, s := range c.seats {
		all = append(all, s)
	}
	return all
}

// pick chooses a node to go to.
func (c *client) pick() *process {
	if there := c.reached(); len(there) > 0 {
		return there[c.rand.IntN(len(there))]
	}
	return nil
}

// reached returns the processes that can be reached.
func (c *client) reached() (there []*process) {
	for _, n := range c.world.nodes {
		for _, p := range *n.lives.Load() {
			if p.alive() && p.still() == nil {
				there = append(there, p)
			}
		}
	}
	return there
}

// living returns the process at an address, nil where it cannot be reached.
func (c *client) living(address string) *process {
	for _, p := range c.reached() {
		if p.id == address {
			return p
		}
	}
	return nil
}

// topology returns what the nodes that can be reached know of who owns what.
func (c *client) topology() (latest gateway.Topology) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range c.reached() {
		if t, err := p.member.Topology().Follow(over, 0); err == nil && t.Version > latest.Version {
			latest = t
		}
	}
	return latest
}

// move has a session deliver partitions from where the client is in them, and others no longer.
func (c *client) move(s *seat, partitions []change.Partition) {
	if s.process.still() != nil || s.process.dead() {
		return
	}
	places := map[change.Partition]delivery.Place{}
	for _, p := range partitions {
		if before := c.with[p]; before != nil && before != s {
			delete(before.has, p)
			before.owed = append(before.owed, p)
			before.tell()
		}
		s.tell()
		c.with[p] = s
		places[p] = delivery.Place{Ref: c.at[p].Ref()}
		c.hands(p)
		delete(s.has, p)
		s.asked[p]++
	}
	c.hands(change.Partition(c.world.partitions))
	if err := s.session.Session().Attach(places, nil, nil); err != nil {
		c.world.wrong("%s: %s attaches nothing: %v", c.name, s.process.id, err)
	}
}

// hands says where the client is: it has acknowledged that.
func (c *client) hands(p change.Partition) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.generation >= c.rewound {
		c.acked[p].add(0, w.mu.keyed[p].upTo(c.at[p]))
	}
}

// sit begins a session at a process.
func (c *client) sit(ctx context.Context, p *process) {
	w := c.world
	ctx, leave := context.WithCancel(ctx)
	s := &seat{
		client: c, process: p, leave: leave, has: map[change.Partition]bool{}, asked: map[change.Partition]int{}, last: map[change.Partition]int{},
	}
	c.seats[p] = s
	r := streamer.Request{
		Subscriber: c.name, Process: c.process, Started: c.started, Known: c.known, Generation: c.generation, Attached: c.owned, Detachable: c.owned,
		Start: streamer.StartTime, Time: w.origin.Start.Time(),
	}
	if c.known {
		low := c.at[0]
		r.Partitions = map[change.Partition]delivery.Place{}
		for q, at := range c.at {
			c.hands(change.Partition(q))
			if low.After(at) {
				low = at
			}
			if q < w.partitions {
				r.Partitions[change.Partition(q)] = delivery.Place{Ref: at.Ref()}
			}
		}
		r.At = delivery.Place{Ref: low.Ref()}
	}
	w.running.Go(func() {
		select {
		case <-p.gone:
			leave()
		case <-ctx.Done():
		}
	})
	w.running.Go(func() {
		defer leave()
		p.pass()
		var session *streamer.Exclusive
		session, s.refused = p.run.Connect(context.Background(), r, everything())
		if s.refused == nil {
			defer func() {
				p.pass() // the node notices sooner or later that nobody is there
				session.Close(context.Background(), nil)
			}()
			s.session = session
		}
		select {
		case c.opened <- s:
		case <-ctx.Done():
			return
		}
		if s.refused != nil {
			return
		}
		for {
			batches, _, err := session.Session().Receive(ctx)
			p.pass()
			if p.dead() {
				return
			}
			for _, b := range batches {
				session.Session().Prune(b)
			}
			select {
			case c.brought <- brought{s, batches, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// open takes a session that is open, or was refused.
func (c *client) open(s *seat) {
	w := c.world
	switch {
	case c.seats[s.process] != s:
		return
	case s.refused != nil:
		w.say("%s is refused by %s: %v", c.name, s.process.id, s.refused)
		c.rise(s)
		return
	}
	w.count(func(f *figures) { f.sessions++ })
	s.heard = time.Now()
}

// take takes what a session has brought.
func (c *client) take(b brought) {
	s := b.seat
	if c.seats[s.process] != s {
		return // it was left
	}
	if b.err != nil {
		c.world.say("%s: the session at %s is over: %v", c.name, s.process.id, b.err)
		c.rise(s)
		return
	}
	s.heard = time.Now()
	for _, batch := range b.batches {
		if c.seats[s.process] != s {
			return
		}
		if !s.begun {
			c.welcome(s, batch)
		}
		s.take(batch)
	}
}

// welcome takes the first batch of a session, which says where that begins.
func (c *client) welcome(s *seat, b *delivery.Batch) {
	w := c.world
	s.begun = true
	generation := s.session.Generation()
	if s.session.Begin() != streamer.BeginPositions {
		if c.known && generation < c.generation {
			w.wrong("%s: %s begins at its checkpoint of generation %d, it is in generation %d", c.name, s.process.id, generation, c.generation)
		}
		for _, other := range c.all() {
			if other != s {
				c.rise(other)
			}
		}
		w.mu.Lock()
		for q := range c.at {
			if p := change.Partition(q); !c.known || c.at[q].After(b.To) {
				c.at[q] = b.To
				c.had[q] = max(c.acked[q].n, s.process.offer(c.name, p))
			}
		}
		w.mu.Unlock()
		c.known = true
	}
	c.generation = max(c.generation, generation)
}

// delivers reports whether a session delivers a partition, as the client has asked it to.
func (s *seat) delivers(p change.Partition) bool {
	return !s.client.owned || s.has[p] && s.asked[p] == 0
}

// take takes a batch as the protocol says.
func (s *seat) take(b *delivery.Batch) {
	c, w := s.client, s.client.world
	if !s.process.member.Trusted() && len(b.Events) > 0 {
		w.count(func(f *figures) { f.alone++ })
	}
	for _, p := range b.Detached {
		w.count(func(f *figures) { f.detached++ })
		if !w.breaks.windows {
			s.lost(p)
		}
	}
	for _, p := range b.Attached {
		if s.asked[p]--; s.asked[p] == 0 && c.with[p] == s {
			s.has[p] = true
		}
		delete(s.last, p)
	}
	if b.Loss != nil && !s.lose(b) {
		return
	}
	from, to := map[change.Partition]int{}, map[change.Partition]int{}
	for i := range b.Events {
		s.handle(&b.Events[i], from, to)
	}
	s.reached(b.To)
	s.unacked = append(s.unacked, sent{b.Seq, time.Now().Add(time.Duration(c.lag.Load())), c.generation, from, to})
}

// lost takes that the node does not deliver a partition any more: the client attaches it elsewhere,
// or here again.
func (s *seat) lost(p change.Partition) {
	delete(s.has, p)
	if s.client.with[p] == s {
		delete(s.client.with, p)
	}
	s.owed = append(s.owed, p)
}

// lose takes a loss, which can only be of a rewind, and reports whether the session goes on.
func (s *seat) lose(b *delivery.Batch) bool {
	c, w := s.client, s.client.world
	if b.Loss.Kind != delivery.Rewound {
		w.wrong("%s: %s tells of a loss: %+v", c.name, s.process.id, *b.Loss)
		return false
	}
	clear(s.last)
	if b.Loss.Generation <= c.generation {
		return true
	}
	w.say("%s hears from %s of generation %d", c.name, s.process.id, b.Loss.Generation)
	c.generation = b.Loss.Generation
	for _, other := range c.all() {
		if other != s {
			c.rise(other)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range c.at {
		if c.at[q].After(b.To) {
			c.at[q] = b.To
			c.had[q] = min(c.had[q], w.mu.keyed[q].upTo(b.To))
		}
	}
	return true
}

// handle handles one event: what was had before may come again, without a hole, and nothing may be
// left out.
func (s *seat) handle(e *delivery.Event, from, to map[change.Partition]int) {
	c, w := s.client, s.client.world
	p := e.Partition
	if e.Keyless {
		p = change.Partition(w.partitions)
	} else if !s.delivers(p) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known := w.mu.keyed[p].index[e.Ref]
	last, begun := s.last[p]
	switch {
	case !known:
		w.complain("%s: partition %d: an event that nobody has written", c.name, p)
		return
	case begun && !e.Keyless && at != last:
		w.complain("%s: partition %d: event %d comes from %s, %d was to come", c.name, p, at, s.process.id, last)
	case at > c.had[p]:
		w.complain("%s: partition %d: event %d comes from %s, it has %d", c.name, p, at, s.process.id, c.had[p])
	case begun && e.Keyless && at < last && !c.owned:
		w.complain("%s: event %d of no document comes from %s after %d", c.name, at, s.process.id, last-1)
	}
	if at < c.had[p] {
		w.mu.figures.repeated++
	}
	if _, there := from[p]; !there {
		from[p] = at
	}
	s.last[p], to[p] = at+1, at+1
	c.had[p] = max(c.had[p], at+1)
	c.at[p] = change.Later(c.at[p], w.mu.keyed[p].positions[at])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.done[p] = max(c.mu.done[p], at+1)
}

// reached notes that a session has come to a position: everything of its partitions up to there has
// come.
func (s *seat) reached(to change.Position) {
	c, w := s.client, s.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	some := false
	for q := range c.at {
		p := change.Partition(q)
		switch {
		case q == w.partitions && c.owned && !some, q < w.partitions && !s.delivers(p):
			continue
		}
		some = true
		if n := w.mu.keyed[q].upTo(to); n > c.had[q] {
			w.complain("%s: partition %d: %s is at %s, after %d events, %d have come", c.name, q, s.process.id, to, n, c.had[q])
			c.had[q] = n
		}
		c.at[q] = change.Later(c.at[q], to)
	}
}

// acknowledge acknowledges what is due.
func (s *seat) acknowledge() {
	c, w := s.client, s.client.world
	s.tell()
	for len(s.unacked) > 0 && !time.Now().Before(s.unacked[0].due) && s.process.still() == nil && !s.process.dead() {
		first := s.unacked[0]
		s.unacked = s.unacked[1:]
		w.mu.Lock()
		if first.generation >= c.rewound {
			for p := range first.to {
				c.acked[p].add(first.from[p], first.to[p])
			}
		}
		w.mu.Unlock()
		if err := s.session.Ack(first.seq); err != nil {
			w.wrong("%s: %s does not take an acknowledgement: %v", c.name, s.process.id, err)
		}
	}
}
