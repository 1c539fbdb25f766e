package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd"
)

// A handoffContender is a cluster with two gateways, whose partitions move between nodes.
type handoffContender struct {
	nodes    int
	settings []string // of the nodes, in addition to the usual ones
	move     func(*testCluster, context.Context) error

	round   *round
	cluster *testCluster
	follows *follower // follows the owners
	stays   *follower // has one session
}

// Open implements Contender.
func (c *handoffContender) Open(ctx context.Context, round *round) (err error) {
	c.round = round
	if c.cluster, err = openCluster(ctx, round, c.nodes, c.settings...); err != nil {
		return err
	}
	if c.follows, err = c.connect(ctx, client.Owned, c.nodes); err != nil {
		return err
	}
	c.stays, err = c.connect(ctx, client.All, 1)
	return err
}

const (
	// before is how long the measurement runs before the move, after how long it continues after
	// it, because the donor keeps delivering for a second.
	before, after = time.Second, 1500 * time.Millisecond
)

// Read implements Contender.
func (c *handoffContender) Read(ctx context.Context) error {
	w := newMovesWriter(c.round.URI, c.round.DB, c.round.Rate)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.run(writing) }()
	c.round.begin()
	moved, err := c.watch(ctx, ended)
	stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	numbers, total := w.written()
	for _, g := range []*follower{c.follows, c.stays} {
		if err := g.awaitAll(ctx, numbers); err != nil {
			return err
		}
	}
	c.round.total = total
	c.round.check.delays = c.follows.check.watched(moved)
	c.round.record("p99_of_a_client_at_any_node", p99(c.stays.check.watched(moved)))
	c.round.record("partitions", float64(len(moved)))
	c.round.record("came_again", float64(c.follows.client.Stats().Duplicates))
	return nil
}

// watch moves partitions, and returns which. The writer must not end meanwhile.
func (c *handoffContender) watch(ctx context.Context, writing <-chan error) (moved map[change.Partition]bool, err error) {
	if err := pause(ctx, before, writing); err != nil {
		return nil, err
	}
	c.follows.check.watch()
	if err := pause(ctx, before, writing); err != nil {
		return nil, err
	}
	if moved, err = c.cluster.owned(ctx, c.cluster.nodes[0]); err != nil {
		return nil, err
	}
	c.round.record("p99_before", p99(c.follows.check.watched(moved)))
	c.follows.check.watch()
	c.stays.check.watch()
	begun := time.Now()
	if err := c.move(c.cluster, ctx); err != nil {
		return nil, err
	}
	c.round.record("move_took_s", time.Since(begun).Seconds())
	return moved, pause(ctx, after, writing)
}

// pause waits.
func pause(ctx context.Context, d time.Duration, writing <-chan error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-writing:
		return errors.Join(errors.New("the writer has ended"), err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements Contender.
func (c *handoffContender) Close() error {
	var errs []error
	for _, g := range []*follower{c.follows, c.stays} {
		if g != nil {
			errs = append(errs, g.close())
		}
	}
	if c.cluster != nil {
		errs = append(errs, c.cluster.close())
	}
	return errors.Join(errs...)
}

// A follower is a Go client that checks its changes.
type follower struct {
	*clientRun

	client *client.Client
	check  *pauses
}

// connect runs a client, and returns when it has the given number of sessions.
func (c *handoffContender) connect(ctx context.Context, partitions client.Partitions, sessions int) (*follower, error) {
	g := &follower{check: newPauses(documents)}
	connected := make(chan struct{}, 100)
	var err error
	g.client, err = client.New(client.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Addresses: c.cluster.addresses(), Subscriber: fmt.Sprint("bench-", partitions), Start: client.StartNow, Partitions: partitions,
		OnNotice: connects(connected),
	})
	if err != nil {
		return nil, err
	}
	take := func(_ context.Context, change client.Change) error { return g.check.take(change) }
	if err := g.client.Subscribe(client.Subscription{ID: "all"}, take); err != nil {
		return nil, err
	}
	g.clientRun = runClient(ctx, g.client)
	for range sessions {
		if err := g.await(ctx, connected); err != nil {
			return g, err
		}
	}
	return g, nil
}

// awaitAll waits until all written changes have arrived.
func (g *follower) awaitAll(ctx context.Context, written []int64) error {
	for {
		if whole, err := g.check.has(written); whole || err != nil {
			return err
		}
		if err := g.await(ctx, g.check.more); err != nil {
			return err
		}
	}
}

func (g *follower) close() error {
	g.stop()
	return g.err
}

var _ contender = (*handoffContender)(nil)

// settle is how long a cluster that begins waits for its nodes.
const settle = 500 * time.Millisecond

// A testCluster is a cluster of nodes, with a view of its state.
type testCluster struct {
	nodes  []*member
	client *etcd.Client
	roster *etcd.ClusterStore
}

// openCluster starts a cluster of the given number of nodes, and returns when they share the
// partitions.
func openCluster(ctx context.Context, r *round, nodes int, settings ...string) (*testCluster, error) {
	client, err := etcd.Dial(ctx, etcd.Config{Endpoints: []string{r.Etcd}, Prefix: "/streamer", Cluster: r.Name})
	if err != nil {
		return nil, err
	}
	c := &testCluster{client: client, roster: etcd.NewClusterStore(client, etcd.ClusterConfig{Partitions: r.Partitions})}
	for i := range nodes {
		n, err := newMember(r, i, settings...)
		if err == nil {
			c.nodes = append(c.nodes, n)
			err = n.start(ctx, settle)
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	err = c.until(ctx, "the nodes share the partitions", func(v cluster.View) bool {
		count := make(map[string]int)
		for p, owner := range v.Owners {
			if owner.Node != v.Plan.Owners[p] || !serves(v, change.Partition(p)) {
				return false
			}
			count[owner.Node]++
		}
		return len(count) == nodes
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *testCluster) close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.end())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

// addresses returns the nodes' addresses for gateways.
func (c *testCluster) addresses() (all []string) {
	for _, n := range c.nodes {
		all = append(all, n.address)
	}
	return all
}

// until waits until a view is as wanted.
func (c *testCluster) until(ctx context.Context, what string, wanted func(cluster.View) bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		view, err := c.roster.View(ctx)
		isPlanned := err == nil && len(view.Owners) > 0 && len(view.Plan.Owners) == len(view.Owners)
		if isPlanned && wanted(view) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("in vain: %s: %w", what, context.Cause(ctx))
		}
	}
}

// serves reports whether a partition's owner says that it serves it.
func serves(v cluster.View, p change.Partition) bool {
	owner := v.Owners[p]
	return owner.Process != "" && slices.ContainsFunc(v.Members, func(s cluster.Member) bool {
		return s.Process == owner.Process && slices.ContainsFunc(s.Held, func(h cluster.HeldPartition) bool {
			return h.Partition == p && h.Epoch == owner.Epoch && h.State != string(cluster.StatusStarting)
		})
	})
}

// owned returns the partitions of a node.
func (c *testCluster) owned(ctx context.Context, n *member) (map[change.Partition]bool, error) {
	view, err := c.roster.View(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make(map[change.Partition]bool)
	for p, owner := range view.Owners {
		if owner.Process == n.process {
			partitions[change.Partition(p)] = true
		}
	}
	return partitions, nil
}

// drain drains the first node, and waits until the others serve its partitions.
func (c *testCluster) drain(ctx context.Context) error {
	from := c.nodes[0]
	if err := c.roster.Drain(ctx, from.id, cluster.Drain{By: "bench", At: time.Now()}); err != nil {
		return err
	}
	return c.until(ctx, from.id+" has given up what it had", func(v cluster.View) bool {
		for p, owner := range v.Owners {
			if owner.Process == from.process || !serves(v, change.Partition(p)) {
				return false
			}
		}
		return true
	})
}

// restart stops the first node, starts it again, and waits until it serves everything. It waits for
// no further nodes this time.
func (c *testCluster) restart(ctx context.Context) error {
	n := c.nodes[0]
	if err := n.end(); err != nil {
		return err
	}
	if err := n.start(ctx, 0); err != nil {
		return err
	}
	return c.until(ctx, n.id+" serves again", func(v cluster.View) bool {
		for p, owner := range v.Owners {
			if owner.Process != n.process || !serves(v, change.Partition(p)) {
				return false
			}
		}
		return true
	})
}

// A member is a node of the cluster: a process, which has the same name and address in each of its
// lives.
type member struct {
	id, address string
	settings    []string

	process string // of its last life
	running *worker
}

// newMember makes the i-th node of a cluster, with additional settings.
func newMember(r *round, i int, settings ...string) (*member, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	n := &member{id: fmt.Sprint("node-", i+1), address: l.Addr().String()}
	n.settings = append(nodeSettings(&r.scenario, n.id, n.address), "STREAMER_CLUSTER_EXPECTED_NODES=2")
	n.settings = append(n.settings, settings...)
	return n, l.Close()
}

// start begins a life of the node. settle is how long the cluster waits for further nodes.
func (n *member) start(ctx context.Context, settle time.Duration) (err error) {
	if n.running, err = startWorker("node", os.Stderr); err != nil {
		return err
	}
	l := nodeConfig{Settings: append(slices.Clip(n.settings), "STREAMER_CLUSTER_SETTLE_TIME="+settle.String()), Process: rand.Text()}
	n.process = l.Process
	return n.running.call(ctx, "start", l, &nodeAddresses{})
}

// end ends a life of the node, as SIGTERM does.
func (n *member) end() error {
	if n.running == nil {
		return nil
	}
	defer func() { n.running = nil }()
	return n.running.close()
}

const (
	// documents is small, so that each document is written every few hundredths of a second and a
	// pause is noticed.
	documents = 256
	// pace is how often changes are written.
	pace = 5 * time.Millisecond
	// most bounds the changes of one write, after MongoDB was slow. An update contains only fields
	// with new values, so a document that changed twice at the same time would not contain the time
	// again.
	most = documents
)

// A movesWriter changes documents in rotation, at a rate.
type movesWriter struct {
	uri, db string
	rate    int

	mu      sync.Mutex
	numbers []int64 // by document, the number of its last change
	total   int
}

func newMovesWriter(uri, db string, rate int) *movesWriter {
	return &movesWriter{uri: uri, db: db, rate: rate, numbers: make([]int64, documents+1)}
}

// run writes until the context ends, which is not an error. It completes a write that has begun.
func (w *movesWriter) run(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(w.uri).SetAppName("bench writer"))
	if err != nil {
		return fmt.Errorf("connect the writer: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	coll := client.Database(w.db).Collection("moves")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for begun, done := time.Now(), 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		due := min(int(time.Since(begun).Seconds()*float64(w.rate))-done, most)
		if due <= 0 {
			continue
		}
		if err := w.write(context.WithoutCancel(ctx), coll, done, due); err != nil {
			return err
		}
		done += due
	}
}

// write writes n changes, after the first ones.
func (w *movesWriter) write(ctx context.Context, coll *mongo.Collection, first, n int) error {
	models := make([]mongo.WriteModel, n)
	now := time.Now().UnixNano()
	for i := range models {
		id, seq := int64((first+i)%documents+1), int64((first+i)/documents+1)
		fields := bson.D{{Key: "seq", Value: seq}, {Key: "at", Value: now}}
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).SetUpdate(bson.D{{Key: "$set", Value: fields}}).SetUpsert(seq == 1)
	}
	if _, err := coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true)); err != nil {
		return fmt.Errorf("write %d changes: %w", n, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		w.numbers[(first+i)%documents+1]++
	}
	w.total += n
	return nil
}

// written returns the number of the last change of each document, and the number of all changes.
func (w *movesWriter) written() (numbers []int64, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(numbers, w.numbers...), w.total
}

// pauses records the changes of one client, and how long each document paused. The client's
// handlers run concurrently.
type pauses struct {
	mu      sync.Mutex
	last    []int64            // by document, the number of its last change
	of      []change.Partition // by document
	longest []time.Duration    // by document, during the measurement; nil otherwise
	fault   error              // the first fault
	more    chan struct{}      // holds one signal: a change has arrived
}

func newPauses(documents int) *pauses {
	return &pauses{last: make([]int64, documents+1), of: make([]change.Partition, documents+1), more: make(chan struct{}, 1)}
}

// take takes a change.
func (c *pauses) take(event client.Change) error {
	now := time.Now()
	id, seq, at, err := readChange(event.Data)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || id >= int64(len(c.last)) {
		return fmt.Errorf("document %d, which nobody wrote", id)
	}
	if seq != c.last[id]+1 && c.fault == nil {
		c.fault = fmt.Errorf("change %d of document %d came after change %d", seq, id, c.last[id])
	}
	c.last[id] = seq
	c.of[id] = change.Partition(event.Partition)
	if c.longest != nil {
		c.longest[id] = max(c.longest[id], now.Sub(time.Unix(0, at)))
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
	return nil
}

// readChange finds the numbers of a change.
func readChange(event bson.Raw) (id, seq, at int64, err error) {
	fields, found := event.Lookup("fullDocument").DocumentOK()
	if !found {
		fields, found = event.Lookup("updateDescription", "updatedFields").DocumentOK()
	}
	id, idOK := event.Lookup("documentKey", "_id").Int64OK()
	if !found || !idOK {
		return 0, 0, 0, errors.New("an event that is not of the benchmark's form")
	}
	seq, seqOK := fields.Lookup("seq").Int64OK()
	at, atOK := fields.Lookup("at").Int64OK()
	if !seqOK || !atOK {
		return 0, 0, 0, errors.New("a change without its number")
	}
	return id, seq, at, nil
}

// watch keeps each document's longest delay from now on.
func (c *pauses) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = make([]time.Duration, len(c.last))
}

// watched returns the longest delays of the documents in the partitions since watch.
func (c *pauses) watched(partitions map[change.Partition]bool) (delays []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, d := range c.longest {
		if id > 0 && partitions[c.of[id]] {
			delays = append(delays, d)
		}
	}
	return delays
}

// has reports whether all written changes, by document, have arrived; an error reports a wrong
// change.
func (c *pauses) has(written []int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Equal(c.last, written), c.fault
}
