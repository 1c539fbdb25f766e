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
	"github.com/mongostream/streamer/checkpoint/row"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/connect/standing"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

const shares = 8

// A town is a cluster: real nodes over one log, and the topology that they tell.
type town struct {
	*testing.T

	source     lanetest.Log
	log        lane.Source // what nodes read, usually source
	partitions int
	rows       row.Memory
	cursors    standing.Cursors

	mu       sync.Mutex
	topology connect.Topology
	changed  chan struct{} // closed when the topology changes
	nodes    []*resident
}

// A resident is a node of a town.
type resident struct {
	town    *town
	name    string
	address string
	stop    func() // kills it
}

func newTown(t *testing.T, nodes int) *town {
	t.Helper()
	w := &town{T: t, partitions: shares, changed: make(chan struct{})}
	w.log = &w.source
	w.source.Append(changetest.Event{ID: -1})
	w.populate(nodes)
	return w
}

// populate starts nodes.
func (w *town) populate(nodes int) {
	w.nodes = make([]*resident, nodes)
	for i := range w.nodes {
		w.nodes[i] = &resident{town: w, name: fmt.Sprint("node-", i)}
		w.nodes[i].begin()
	}
	w.Cleanup(func() {
		for _, n := range w.nodes {
			n.stop()
		}
	})
}

// begin starts the node, at the address that it had.
func (n *resident) begin() {
	t := n.town
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", cmpOr(n.address, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	n.address = listener.Addr().String()
	log := lane.NewLog(lane.Config{Partitions: t.partitions}, t.log)
	hub := fanout.New(fanout.Config{Partitions: t.partitions, JSON: func(b, doc []byte) ([]byte, error) { return append(b, doc...), nil }, Bookmark: 50 * time.Millisecond}, log)
	server := connect.NewServer(connect.Config{
		Cluster: "town", Node: n.name, Partitions: t.partitions, Rows: &t.rows, Cursors: t.cursors, Topology: t,
		Now: func(context.Context) (change.Timestamp, error) {
			_, last := t.reach()
			return last, nil
		},
		First: func(context.Context) (change.Timestamp, bool, error) {
			first, _ := t.reach()
			return first, true, nil
		},
	}, hub)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx, change.Position{}) })
	running.Go(func() { _ = hub.Run(ctx) })
	running.Go(func() {
		if err := server.Serve(ctx, listener, nil, time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// reach returns the times of the log's oldest and youngest entries.
func (w *town) reach() (first, last change.Timestamp) {
	return w.log.(interface {
		Reach() (first, last change.Timestamp)
	}).Reach()
}

// Follow implements connect.Topologist.
func (w *town) Follow(ctx context.Context, version uint64) (connect.Topology, error) {
	for {
		w.mu.Lock()
		now, changed := w.topology, w.changed
		w.mu.Unlock()
		if now.Version > version {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return connect.Topology{}, context.Cause(ctx)
		}
	}
}

// own gives partitions to nodes, by their numbers.
func (w *town) own(owner func(partition int) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := connect.Topology{Version: w.topology.Version + 1}
	for _, n := range w.nodes {
		t.Nodes = append(t.Nodes, connect.NodeAddress{Name: n.name, Address: n.address})
	}
	for p := range shares {
		t.Owners = append(t.Owners, owner(p))
	}
	w.topology = t
	close(w.changed)
	w.changed = make(chan struct{})
}

// A ledger is what a program has handled: the numbers of documents, by partition in their order.
type ledger struct {
	*journal

	got map[uint32][]int64
	all int
}

func newLedger() *ledger { return &ledger{journal: newJournal(), got: map[uint32][]int64{}} }

func (l *ledger) handle(_ context.Context, c client.Change) error {
	id, ok := bson.Raw(c.Data).Lookup("documentKey", "_id").AsInt64OK()
	if !ok {
		return errors.New("no id")
	}
	l.mu.Lock()
	l.got[c.Partition] = append(l.got[c.Partition], id)
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

func (w *town) write(written *int64, n int) {
	for range n {
		w.source.Append(changetest.Event{ID: *written})
		*written++
	}
}

func ownedConfig(j *journal, w *town) client.Config {
	cfg := config(j, w.nodes[0].address)
	cfg.Partitions = client.Owned
	cfg.ReconnectWait, cfg.MaxReconnectWait = time.Millisecond, 20*time.Millisecond
	return cfg
}

func TestPartitionsComeFromTheirOwners(t *testing.T) {
	w, l := newTown(t, 3), newLedger()
	w.own(func(p int) int { return p % 2 })
	p := start(t, ownedConfig(l.journal, w), l.handle)
	for _, n := range w.nodes[:2] {
		told(t, l.journal, func(c notice.Connected) bool { return c.Node == n.name && c.Address == n.address })
	}
	var written int64
	w.write(&written, 100)
	l.expect(t, written)
	w.own(func(p int) int { return 1 + p%2 }) // node 0 owns nothing any more, and is left
	told(t, l.journal, func(c notice.Connected) bool { return c.Node == "node-2" })
	w.write(&written, 100)
	l.expect(t, written)
	p.end()
	if s := p.Stats(); s.Holes > 0 || s.Losses > 0 {
		t.Errorf("%+v", s)
	}
}

// Whatever moves, dies and comes back, a client that follows the topology gets everything once, in order.
func TestOwnersComeAndGo(t *testing.T) {
	for seed := range uint64(10) {
		w, l := newTown(t, 3), newLedger()
		r := rand.New(rand.NewPCG(seed, 3))
		random := func(int) int { return r.IntN(4) - 1 }
		w.own(random)
		p := start(t, ownedConfig(l.journal, w), l.handle)
		told(t, l.journal, anyOf[notice.Connected])
		var written int64
		for range 30 {
			w.write(&written, r.IntN(30))
			switch r.IntN(4) {
			case 0:
				w.own(random)
			case 1:
				one := r.IntN(shares)
				w.own(func(p int) int {
					if p == one {
						return random(p)
					}
					return w.topology.Owners[p]
				})
			case 2:
				n := w.nodes[r.IntN(3)]
				n.stop()
				w.write(&written, r.IntN(30))
				n.begin()
			default:
				l.expect(t, written)
			}
		}
		l.expect(t, written)
		p.end()
		if s := p.Stats(); s.Holes > 0 || s.Losses > 0 {
			t.Errorf("%+v", s)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// allConfig is of a client that has one session, with whichever node.
func allConfig(j *journal, w *town) client.Config {
	cfg := ownedConfig(j, w)
	cfg.Partitions = client.All
	for _, n := range w.nodes[1:] {
		cfg.Addresses = append(cfg.Addresses, n.address)
	}
	return cfg
}

// A session with a node that owns nothing gets everything, and one whose node dies goes on at the next address at once.
func TestAnyNodeServesEverything(t *testing.T) {
	w, l := newTown(t, 3), newLedger()
	w.own(func(int) int { return 2 })
	cfg := allConfig(l.journal, w)
	cfg.ReconnectWait, cfg.MaxReconnectWait = time.Hour, time.Hour // nothing is waited for
	p := start(t, cfg, l.handle)
	var written int64
	for i, n := range w.nodes {
		told(t, l.journal, func(c notice.Connected) bool { return c.Node == n.name })
		w.write(&written, 50)
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

// A gateway that has lost its own positions goes on from the row that another node has saved: as that node knows it, or as the gateway has told
// it, where it has sessions with several.
func TestRowThatAnotherNodeHasSavedProtectsAGateway(t *testing.T) {
	for name, of := range map[string]func(*journal, *town) client.Config{"all": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			w, l := newTown(t, 3), newLedger()
			w.own(func(p int) int { return p % 2 })
			p := start(t, of(l.journal, w), l.handle)
			told(t, l.journal, anyOf[notice.Connected])
			var written int64
			w.write(&written, 50)
			l.expect(t, written)
			p.end()
			w.write(&written, 50) // while it is away
			w.nodes[0].stop()     // writes its sessions' last rows, if they are there still
			cfg := of(l.journal, w)
			cfg.Addresses, cfg.Start = []string{w.nodes[2].address}, client.StartResume
			w.own(func(int) int { return 2 })
			again := newLedger()
			cfg.OnNotice = again.notice
			p = start(t, cfg, again.handle)
			told(t, again.journal, func(c notice.Connected) bool { return c.Node == "node-2" && c.Recovered })
			w.write(&written, 50)
			last := func(got map[uint32][]int64) (n int) {
				for _, ids := range got {
					for _, id := range ids {
						if id >= 50 {
							n++
						}
					}
				}
				return n
			}
			again.wait(t, "what came while it was away, and after", func() bool { return last(again.got) == 100 })
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
