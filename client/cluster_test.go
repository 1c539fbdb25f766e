package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

const shares = 8

// A cluster is real nodes over one log in memory, the checkpoints that they share, and the topology
// that they tell. All of it is what a service runs, but for MongoDB and etcd.
type cluster struct {
	failing

	source     *oplogtest.Log
	partitions int
	store      *checkpointtest.Memory
	nodes      []*member

	overlap  time.Duration // of handoffs
	topology gateway.Topology
	mu       sync.Mutex
	changed  chan struct{} // closed when the topology changes
}

// What fails a test, or an example.
type failing interface {
	Helper()
	Fatal(args ...any)
	Error(args ...any)
}

// A log is what nodes read, and how far it goes.
type log interface {
	oplog.Source
	Reach() (first, last change.Timestamp)
}

// A member is a node of a cluster.
type member struct {
	cluster *cluster
	source  log
	name    string
	address string
	node    *streamer.Node
	stop    func() // stops it, as soon as it can
}

// newCluster starts nodes over one log. stop stops them.
func newCluster(t failing, partitions, nodes int) (c *cluster, stop func()) {
	t.Helper()
	source := &oplogtest.Log{}
	source.Append(changetest.Event{ID: -1})
	c = &cluster{failing: t, source: source, partitions: partitions, store: checkpointtest.NewMemory(partitions), changed: make(chan struct{})}
	if _, err := c.store.Create(context.Background(), c.origin()); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		c.nodes = append(c.nodes, &member{cluster: c, source: source, name: fmt.Sprint("node-", i), address: devmongotest.FreeAddress()})
	}
	c.begin()
	return c, c.stop
}

func (c *cluster) origin() checkpoint.Origin {
	return checkpoint.Origin{Cluster: "cluster", Incarnation: 1, Partitions: c.partitions}
}

func (c *cluster) begin() {
	for _, n := range c.nodes {
		n.begin()
	}
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.stop()
	}
}

// startCluster is newCluster for a test.
func startCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c, stop := newCluster(t, shares, nodes)
	t.Cleanup(stop)
	return c
}

// begin starts the node, at the address that it had.
func (n *member) begin() {
	c := n.cluster
	c.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", n.address)
	if err != nil {
		c.Fatal(err)
	}
	reach := func(context.Context) (gap.Reach, error) {
		first, last := n.source.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}
	log := oplog.New(oplog.Config{Partitions: c.partitions, Reach: reach, Lost: func(l oplog.Loss) { n.node.Lost(l) }}, n.source)
	hub := delivery.New(delivery.Config{
		Partitions: c.partitions, Bookmark: 50 * time.Millisecond,
	}, log)
	reaches := oplog.NewRange(oplog.RangeConfig{Ask: reach, Heard: func(r gap.Reach, floor change.Timestamp) { n.node.Heard(r, floor) }})
	n.node = streamer.NewNode(streamer.NodeConfig{
		Origin: c.origin(), By: n.name, Range: reaches,
	}, hub, log, c.store)
	server := gateway.NewServer(gateway.Config{Cluster: "cluster", Node: n.name, Partitions: c.partitions, Topology: c}, n.node)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.node.Run(ctx); err != nil {
			c.Error(err)
		}
	})
	running.Go(func() {
		if err := server.Serve(ctx, listener, nil, time.Millisecond); err != nil {
			c.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// Follow implements gateway.Topologist.
func (c *cluster) Follow(ctx context.Context, version uint64) (gateway.Topology, error) {
	for {
		c.mu.Lock()
		now, changed := c.topology, c.changed
		c.mu.Unlock()
		if now.Version > version {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gateway.Topology{}, context.Cause(ctx)
		}
	}
}

// own gives partitions to nodes, by their numbers. Nodes that had them deliver them for the
// broadcast window.
func (c *cluster) own(owner func(partition int) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.topology.Owners
	defer func() {
		for p, node := range before {
			if node >= 0 && node != c.topology.Owners[p] {
				ctx, end := context.WithTimeout(context.Background(), c.overlap)
				context.AfterFunc(ctx, end)
				c.nodes[node].node.Broadcast([]change.Term{{Partition: change.Partition(p), Context: ctx}})
			}
		}
	}()
	t := gateway.Topology{Version: c.topology.Version + 1}
	for _, n := range c.nodes {
		t.Nodes = append(t.Nodes, gateway.NodeAddress{Name: n.name, Address: n.address})
	}
	for p := range c.partitions {
		t.Owners = append(t.Owners, owner(p))
	}
	c.topology = t
	close(c.changed)
	c.changed = make(chan struct{})
}

// rewind moves a subscriber back as an operator does, to before everything, and has the nodes look.
func (c *cluster) rewind(subscriber string) {
	c.Helper()
	first, _ := c.source.Reach()
	if _, err := c.store.Rewind(context.Background(), checkpoint.Key{Subscriber: subscriber}, change.At(first.Next()), "operator", "a test"); err != nil {
		c.Fatal(err)
	}
	for _, n := range c.nodes {
		n.node.Rewound(subscriber)
	}
}

// A ledger is what a program has handled: the numbers of documents, by partition in their order.
type ledger struct {
	*journal

	got  map[uint32][]int64
	last map[uint32]client.Change
	all  int
}

func newLedger() *ledger {
	return &ledger{journal: newJournal(), got: map[uint32][]int64{}, last: map[uint32]client.Change{}}
}

func (l *ledger) handle(_ context.Context, c client.Change) error {
	id, ok := bson.Raw(c.Data).Lookup("documentKey", "_id").AsInt64OK()
	if !ok {
		return errors.New("no id")
	}
	l.mu.Lock()
	l.got[c.Partition] = append(l.got[c.Partition], id)
	l.last[c.Partition] = c
	l.all++
	l.mu.Unlock()
	l.signal()
	return nil
}

// expect waits for all that was written, and looks whether each came once, in order.
func (l *ledger) expect(t *testing.T, written int64) {
	t.Helper()
	l.wait(t, fmt.Sprintf("%d changes", written), func() bool { return l.all >= int(written) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all != int(written) {
		t.Errorf("%d changes were handled of %d", l.all, written)
	}
	for p, got := range l.got {
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("partition %d: %v", p, got)
		}
	}
	if len(l.lines) > 0 {
		t.Errorf("%q", l.lines)
	}
}

// position waits until the program's position includes all that is in the ledger: it moves when the
// handler has returned, which is later.
func (l *ledger) position(t *testing.T, p *program) (at client.Position) {
	t.Helper()
	l.wait(t, "the position after what was handled", func() bool {
		at = p.Position()
		for _, c := range l.last {
			if at.Merge(at.After(c)).String() != at.String() {
				return !notify(l.written)
			}
		}
		return true
	})
	return at
}

func (c *cluster) write(written *int64, n int) {
	for range n {
		c.source.Append(changetest.Event{ID: *written})
		*written++
	}
}

func ownedConfig(j *journal, c *cluster) client.Config {
	cfg := config(j, c.nodes[0].address)
	cfg.Partitions = client.Owned
	cfg.ReconnectWait, cfg.MaxReconnectWait = time.Millisecond, 20*time.Millisecond
	return cfg
}

// allConfig is of a client that has one session, with whichever node.
func allConfig(j *journal, c *cluster) client.Config {
	cfg := ownedConfig(j, c)
	cfg.Partitions = client.All
	for _, n := range c.nodes[1:] {
		cfg.Addresses = append(cfg.Addresses, n.address)
	}
	return cfg
}

func TestPartitionsComeFromTheirOwners(t *testing.T) {
	c, l := startCluster(t, 3), newLedger()
	c.own(func(p int) int { return p % 2 })
	p := start(t, ownedConfig(l.journal, c), l.handle)
	for _, n := range c.nodes[:2] {
		told(t, l.journal, func(c client.Connected) bool { return c.Node == n.name && c.Address == n.address })
	}
	var written int64
	c.write(&written, 100)
	l.expect(t, written)
	c.own(func(p int) int { return 1 + p%2 }) // node 0 owns nothing any more, and is left
	told(t, l.journal, func(c client.Connected) bool { return c.Node == "node-2" })
	c.write(&written, 100)
	l.expect(t, written)
	l.wait(t, "the first node to be left", func() bool { return len(c.nodes[0].node.Hub().Sessions()) == 0 || !notify(l.written) })
	p.end()
	if s := p.Stats(); s.Losses > 0 {
		t.Errorf("%+v", s)
	}
}

// notify keeps a wait looking.
func notify(c chan struct{}) bool {
	go func() { c <- struct{}{} }()
	return true
}

// Whatever moves, dies and comes back, a client that follows the topology gets everything once, in
// order.
func TestOwnersComeAndGo(t *testing.T) {
	for seed := range uint64(10) {
		c, l := startCluster(t, 3), newLedger()
		r := rand.New(rand.NewPCG(seed, 3))
		random := func(int) int { return r.IntN(4) - 1 }
		c.overlap = []time.Duration{0, 2 * time.Millisecond, time.Second}[seed%3]
		c.own(random)
		p := start(t, ownedConfig(l.journal, c), l.handle)
		told(t, l.journal, anyOf[client.Connected])
		var written int64
		for range 30 {
			c.write(&written, r.IntN(30))
			switch r.IntN(4) {
			case 0:
				c.own(random)
			case 1:
				one := r.IntN(shares)
				c.own(func(p int) int {
					if p == one {
						return random(p)
					}
					return c.topology.Owners[p]
				})
			case 2:
				n := c.nodes[r.IntN(3)]
				n.stop()
				c.write(&written, r.IntN(30))
				n.begin()
			default:
				l.expect(t, written)
			}
		}
		l.expect(t, written)
		p.end()
		if s := p.Stats(); s.Losses > 0 {
			t.Errorf("%+v", s)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A client that cannot reach the new owner of partitions gets them from a node that it reaches,
// also the former owner, after the broadcast window.
func TestNewOwnerThatCannotBeReachedCostsNothing(t *testing.T) {
	c, l := startCluster(t, 2), newLedger()
	c.own(func(int) int { return 0 })
	p := start(t, ownedConfig(l.journal, c), l.handle)
	told(t, l.journal, anyOf[client.Connected])
	var written int64
	c.write(&written, 50)
	l.expect(t, written)
	c.nodes[1].stop()
	c.own(func(p int) int { return p % 2 })
	c.write(&written, 50)
	l.expect(t, written)
	if n := len(c.nodes[0].node.Hub().Sessions()); n != 1 {
		t.Errorf("%d sessions at the node that can be reached", n)
	}
	c.nodes[1].begin()
	told(t, l.journal, func(c client.Connected) bool { return c.Node == "node-1" })
	c.write(&written, 50)
	l.expect(t, written)
	p.end()
}

// A session with a node that owns nothing gets everything, and one whose node stops goes on at the
// next address at once.
func TestAnyNodeServesEverything(t *testing.T) {
	c, l := startCluster(t, 3), newLedger()
	c.own(func(int) int { return 2 })
	cfg := allConfig(l.journal, c)
	cfg.ReconnectWait, cfg.MaxReconnectWait = time.Hour, time.Hour // nothing is waited for
	p := start(t, cfg, l.handle)
	var written int64
	for i, n := range c.nodes {
		told(t, l.journal, func(c client.Connected) bool { return c.Node == n.name })
		c.write(&written, 50)
		l.expect(t, written)
		if i < 2 {
			n.stop()
		}
	}
	p.end()
	if s := p.Stats(); s.Sessions != 3 || s.Losses > 0 {
		t.Errorf("%+v", s)
	}
}

// A subscriber that has lost its own position goes on from the checkpoint that another node has
// saved, or several.
func TestCheckpointOfAnotherNodeProtectsASubscriber(t *testing.T) {
	for name, of := range map[string]func(*journal, *cluster) client.Config{"all": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			c, l := startCluster(t, 3), newLedger()
			c.own(func(p int) int { return p % 2 })
			p := start(t, of(l.journal, c), l.handle)
			told(t, l.journal, anyOf[client.Connected])
			var written int64
			c.write(&written, 50)
			l.expect(t, written)
			p.end()
			c.write(&written, 50) // while it is away
			c.nodes[0].stop()     // saves its sessions' last checkpoints, if they are there still
			cfg := of(l.journal, c)
			cfg.Addresses, cfg.Start = []string{c.nodes[2].address}, client.StartResume
			c.own(func(int) int { return 2 })
			again := newLedger()
			cfg.OnNotice = again.notice
			p = start(t, cfg, again.handle)
			told(t, again.journal, func(c client.Connected) bool { return c.Node == "node-2" && c.Begin == client.BeginCheckpoint })
			c.write(&written, 50)
			last := func() (n int) {
				for _, ids := range again.got {
					for _, id := range ids {
						if id >= 50 {
							n++
						}
					}
				}
				return n
			}
			again.wait(t, "what came while it was away, and after", func() bool { return last() == 100 })
			p.end()
			if len(again.lines) > 0 {
				t.Errorf("%q", again.lines)
			}
			if name == "all" && again.all > 100 {
				t.Errorf("%d changes came again that had been acknowledged", again.all-100)
			}
		})
	}
}

// A process that keeps its position itself goes on there, whatever the nodes keep, and one without
// a name as well.
func TestPositionOfTheProgramComesBeforeTheCheckpoint(t *testing.T) {
	for _, subscriber := range []string{"g", ""} {
		for name, of := range map[string]func(*journal, *cluster) client.Config{"all": allConfig, "owned": ownedConfig} {
			t.Run(fmt.Sprintf("%s, subscriber %q", name, subscriber), func(t *testing.T) {
				c, l := startCluster(t, 2), newLedger()
				c.own(func(p int) int { return p % 2 })
				cfg := of(l.journal, c)
				cfg.Subscriber = subscriber
				p := start(t, cfg, l.handle)
				told(t, l.journal, anyOf[client.Connected])
				var written int64
				c.write(&written, 20)
				l.expect(t, written)
				kept := l.position(t, p)
				c.write(&written, 20)
				l.expect(t, written)
				p.end()
				c.write(&written, 20)
				again := newLedger()
				cfg = of(again.journal, c)
				cfg.Subscriber, cfg.Position = subscriber, kept
				p = start(t, cfg, again.handle)
				again.wait(t, "what came after the position", func() bool { return again.all >= 40 })
				told(t, again.journal, func(c client.Connected) bool { return c.Begin == client.BeginPosition })
				p.end()
				var ids []int64
				for _, got := range again.got {
					ids = append(ids, got...)
				}
				slices.Sort(ids)
				if len(ids) != 40 || ids[0] != 20 || ids[39] != 59 || len(slices.Compact(ids)) != 40 {
					t.Errorf("%v", again.got)
				}
			})
		}
	}
}

// An operator moves the subscriber back: it hears of it, and gets everything again, once, from
// whichever nodes.
func TestRewoundSubscriberGetsEverythingAgain(t *testing.T) {
	for name, of := range map[string]func(*journal, *cluster) client.Config{"all": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			c, l := startCluster(t, 3), newLedger()
			c.own(func(p int) int { return p % 3 })
			var mu sync.Mutex
			times := map[int64]int{}
			p := start(t, of(l.journal, c), func(ctx context.Context, ch client.Change) error {
				if err := l.handle(ctx, ch); err != nil {
					return err
				}
				id, _ := bson.Raw(ch.Data).Lookup("documentKey", "_id").AsInt64OK()
				mu.Lock()
				defer mu.Unlock()
				times[id]++
				return nil
			})
			told(t, l.journal, anyOf[client.Connected])
			var written int64
			c.write(&written, 50)
			l.expect(t, written)
			c.rewind("g")
			l.wait(t, "everything a second time", func() bool { return l.all >= 100 })
			c.write(&written, 50)
			l.wait(t, "what comes after", func() bool { return l.all >= 150 })
			p.end()
			if !slices.Equal(l.lines, []string{"rewound"}) {
				t.Errorf("%q", l.lines)
			}
			for id, n := range times {
				if id >= 50 && n != 1 || id < 50 && n != 2 {
					t.Errorf("%d came %d times", id, n)
				}
			}
		})
	}
}

// A drop comes once, after what happened before it in every partition and before what happened
// after it, whichever nodes serve them, while partitions move and nodes stop.
func TestDropComesOnceBetweenBeforeAndAfterWhateverMoves(t *testing.T) {
	for name, of := range map[string]func(*journal, *cluster) client.Config{"all": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				c := startCluster(t, 3)
				j := newJournal()
				r := rand.New(rand.NewPCG(seed, 5))
				random := func(int) int { return r.IntN(3) }
				c.own(random)
				drops, got, wrong := int64(0), int64(0), ""
				p := start(t, of(j, c), func(_ context.Context, ch client.Change) error {
					j.mu.Lock()
					defer j.signal()
					defer j.mu.Unlock()
					got++
					if ch.AllPartitions {
						if drops++; got%11 != 0 && wrong == "" {
							wrong = fmt.Sprintf("drop %d came after %d changes", drops, got)
						}
						return nil
					}
					// Ten documents between two drops, whose numbers say between which.
					if id := bson.Raw(ch.Data).Lookup("documentKey", "_id").AsInt64(); id/10 != drops && wrong == "" {
						wrong = fmt.Sprintf("document %d came after %d drops", id, drops)
					}
					return nil
				})
				told(t, j, anyOf[client.Connected])
				var written int64
				for range 40 {
					c.write(&written, 10)
					c.source.Append(changetest.Event{Op: "drop", Keyless: true})
					switch r.IntN(5) {
					case 0:
						c.own(random)
					case 1:
						n := c.nodes[r.IntN(3)]
						n.stop()
						n.begin()
					case 2:
						j.wait(t, "all", func() bool { return drops == written/10 })
					}
				}
				j.wait(t, "all", func() bool { return drops == 40 })
				p.end()
				if wrong != "" || got != 440 || len(j.lines) > 0 {
					t.Fatalf("seed %d: %s; %d changes; %q", seed, wrong, got, j.lines)
				}
			}
		})
	}
}
