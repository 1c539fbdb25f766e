package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/wiring"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

const (
	// partitions is the number that the nodes of these tests have.
	partitions = 4
	// application is the name under which a rig's nodes are known to MongoDB: fail points are for
	// them alone.
	application = "streamer c/n"
)

// A rig is a MongoDB to write to and to spoil, an etcd for checkpoints, and what nodes must be told
// of them.
type rig struct {
	*testing.T

	server    *devmongo.Server
	client    *mongo.Client
	etcd      *etcd.Client // what nodes keep in it, past them
	store     *etcd.Store  // where nodes keep their checkpoints, past them
	history   notice.Store // likewise their notices
	settings  []string
	stallHub  func(context.Context) // of nodes; nil: it does not stall
	stallSink func(context.Context) // likewise
	stdout    io.Writer             // of nodes
	file      string                // path of the nodes' configuration, may be empty
	uriFile   string                // path of their connection string, may be empty
}

func newRig(t *testing.T, cfg devmongo.Config, settings ...string) *rig {
	t.Helper()
	server, endpoints := devmongotest.Start(t, cfg), etcdtest.Endpoints(t)
	prefix := etcdtest.Prefix(t, endpoints)
	kept, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: endpoints, Prefix: prefix, Cluster: "c", DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{T: t, server: server, client: dial(t, server.URI()), etcd: kept, store: etcd.NewStore(kept, partitions), history: etcd.NewNoticeStore(kept, etcd.NoticeConfig{Process: "test", Keep: 1000, TTL: time.Hour}), settings: append([]string{
		"STREAMER_MONGODB_URI=" + server.URI() + "&heartbeatFrequencyMS=500", "STREAMER_MONGODB_MAX_AWAIT=20ms", "STREAMER_MONGODB_WATCH=shop.*",
		"STREAMER_ETCD_ENDPOINTS=" + strings.Join(endpoints, ","), "STREAMER_ETCD_PREFIX=" + prefix,
		"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0", "STREAMER_CLUSTER_ID=c", "STREAMER_NODE_ID=n",
		fmt.Sprint("STREAMER_CLUSTER_PARTITIONS=", partitions), "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms",
		"STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=100ms", "STREAMER_ETCD_DIAL_TIMEOUT=30s",
		// A machine that is short of breath must not lose claims: losing them is for the tests that
		// mean it.
		"STREAMER_CLUSTER_LEASE_TTL=1m",
		// Nor must it be restarted because something takes a minute.
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=300s",
	}, settings...)}
}

func mongoClient(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetAppName("test").SetWriteConcern(writeconcern.Majority()))
}

// dial returns a client that lives as long as the test. What it has written nobody can lose any
// more, and everybody sees.
func dial(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client, err := mongoClient(uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

func (r *rig) coll(name string) *mongo.Collection { return r.client.Database("shop").Collection(name) }

// insert inserts documents into shop.orders.
func (r *rig) insert(ids ...any) {
	r.Helper()
	docs := make([]any, len(ids))
	for i, id := range ids {
		docs[i] = bson.D{{Key: "_id", Value: id}}
	}
	if _, err := r.coll("orders").InsertMany(r.Context(), docs); err != nil {
		r.Fatal(err)
	}
}

// series inserts documents with _ids from up to below to, and returns the _ids as they are told.
func (r *rig) series(from, to int) (ids []string) {
	r.Helper()
	var docs []any
	for i := from; i < to; i++ {
		docs, ids = append(docs, i), append(ids, fmt.Sprint(i))
	}
	r.insert(docs...)
	return ids
}

// elsewhere lets the log move on without anything that is watched.
func (r *rig) elsewhere(n int) {
	r.Helper()
	if _, err := r.client.Database("other").Collection("c").InsertMany(r.Context(), slices.Repeat([]any{bson.D{{Key: "v", Value: 1}}}, n)); err != nil {
		r.Fatal(err)
	}
}

// command runs a command on the admin database.
func (r *rig) command(cmd bson.D) {
	r.Helper()
	if err := r.client.Database("admin").RunCommand(r.Context(), cmd).Err(); err != nil {
		r.Fatal(err)
	}
}

// fail makes commands of nodes fail, as often as mode says.
func (r *rig) fail(mode any, code int, commands ...string) {
	r.Helper()
	data := bson.D{{Key: "failCommands", Value: commands}, {Key: "appName", Value: application}, {Key: "errorCode", Value: code}}
	if code == 0 {
		data[2] = bson.E{Key: "closeConnection", Value: true}
	}
	r.command(bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}})
}

func (r *rig) heal() {
	r.Helper()
	r.command(bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}})
}

func times(n int) bson.D { return bson.D{{Key: "times", Value: n}} }

// assemble makes a node.
func (r *rig) assemble(settings ...string) (*wiring.Service, error) {
	r.Helper()
	cfg, err := config.Load(r.file, append(slices.Clone(r.settings), settings...))
	if err != nil {
		r.Fatal(err)
	}
	return wiring.Assemble(r.Context(), wiring.Options{Config: cfg, URIFile: r.uriFile, Process: rand.Text(), TakeOver: true, StallHub: r.stallHub, StallSink: r.stallSink, Stdout: r.stdout})
}

// A live is a running node, and what its shared subscriber has received.
type live struct {
	*rig
	*ledger

	service *wiring.Service
	shared  *streamer.Shared // nil where the node has none
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the node has ended
	err     error         // how it ended
	last    atomic.Uint64 // the last batch of the shared subscriber
}

// sharedName is what the shared subscriber of nodes is called.
const sharedName = "stdout"

// begin starts a node with a shared subscriber; it is stopped at the end of the test.
func (r *rig) begin(settings ...string) *live {
	r.Helper()
	return r.beginWith(&ledger{}, settings...)
}

// beginWith starts a node whose shared subscriber writes what it receives into a ledger. Without a
// ledger it has none.
func (r *rig) beginWith(l *ledger, settings ...string) *live {
	r.Helper()
	service, err := r.assemble(settings...)
	if err != nil {
		r.Fatal(err)
	}
	n := &live{rig: r, ledger: l, service: service, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var receiving sync.WaitGroup
	if l == nil {
		n.ledger = &ledger{}
	} else {
		if n.shared, err = service.Share(context.Background(), sharedName); err != nil {
			r.Fatal(err)
		}
		receiving.Go(n.receive)
	}
	go func() {
		defer close(n.ended)
		n.err = service.Run(ctx)
		if n.shared != nil {
			n.shared.Session().Close(nil)
		}
		receiving.Wait()
	}()
	r.Cleanup(func() {
		if err := n.stop(); errors.Is(err, errStands) {
			r.Error(err)
		}
	})
	return n
}

// receive takes and acknowledges batches as standard output does, until the session ends.
func (n *live) receive() {
	n.end(n.take())
}

func (n *live) take() error {
	for {
		batches, err := n.shared.Receive(context.Background())
		if err != nil {
			return err
		}
		for _, b := range batches {
			n.shared.Prune(b)
			n.add(entriesOf(b)...)
			if err := n.held(n.shared.Session().Done()); err != nil {
				return err
			}
			n.last.Store(b.Seq)
			if n.silent() {
				continue
			}
			if err := n.shared.Ack(b.Seq); err != nil {
				return err
			}
		}
	}
}

// silent reports whether the subscriber acknowledges nothing.
func (n *live) silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deaf && slices.ContainsFunc(n.entries, func(e entry) bool { return e.loss != nil })
}

// listen acknowledges what was not acknowledged, and what is to come.
func (n *live) listen() {
	n.Helper()
	n.mu.Lock()
	n.deaf = false
	n.mu.Unlock()
	if err := n.shared.Ack(n.last.Load()); err != nil {
		n.Error(err)
	}
}

// entriesOf returns what a batch holds.
func entriesOf(b *delivery.Batch) (entries []entry) {
	if l := b.Loss; l != nil {
		return []entry{{loss: &loss{
			kind: string(l.Kind), reason: l.Reason, namespaces: l.Namespaces, from: l.From.Time, to: l.To.Time, advice: l.Advice,
		}}}
	}
	if b.Attached != nil {
		return []entry{{again: true}}
	}
	for i := range b.Events {
		e := &b.Events[i]
		p := int(e.Partition)
		if e.Keyless {
			p = everywhere
		}
		entries = append(entries, entryOfJSON(p, b.Payload(i)))
	}
	return entries
}

// stop stops the node as planned, or returns how it ended before.
func (n *live) stop() error {
	n.cancel()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-n.ended:
		return n.err
	case <-timeout.C:
		return errStands
	}
}

// errStands says that a node was told to stop and has not ended.
var errStands = errors.New("the node does not stop")

// stopped stops the node as planned.
func (n *live) stopped() {
	n.Helper()
	if err := n.stop(); err != nil {
		n.Fatal(err)
	}
}

// until waits for what the subscriber receives, or what a look at the node tells.
func (n *live) until(what string, holds func() bool) {
	n.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		more := n.more()
		if holds() {
			return
		}
		select {
		case <-more:
		case <-look.C:
		case <-n.ended:
			n.Fatalf("the node ended before %s: %v", what, n.err)
		case <-timeout.C:
			n.Fatalf("in vain: %s; %s", what, n.tell())
		}
	}
}

// tell describes the node for a failed test.
func (n *live) tell() string {
	var b strings.Builder
	select {
	case <-n.ended:
		fmt.Fprintf(&b, "the node has ended: %v; ", n.err)
	default:
	}
	for _, s := range n.service.Node().Status() {
		fmt.Fprintf(&b, "partition %d %s at %v %v; ", s.Partition, s.State, s.Position, s.Failure)
	}
	for _, s := range n.service.Node().Subscribers() {
		fmt.Fprintf(&b, "subscriber %+v; ", s)
	}
	fmt.Fprintf(&b, "checkpoints fail: %t; log %+v; received %s", n.service.Node().Failing(), n.service.Log().Stats(), n.ledger)
	return b.String()
}

// once fails the test where one of the documents was told of more than once, or not at all.
func (n *live) once(ids ...string) {
	n.Helper()
	n.ledger.once(n.T, ids...)
}

// sees waits until every one of the documents has been told of.
func (n *live) sees(want ...string) {
	n.Helper()
	n.until(fmt.Sprintf("%d documents arrive", len(want)), func() bool { return len(missing(n.ids(), want)) == 0 })
}

// missing returns those of the wanted that are not there.
func missing(got, want []string) (without []string) {
	there := make(map[string]bool, len(got))
	for _, id := range got {
		there[id] = true
	}
	for _, id := range want {
		if !there[id] {
			without = append(without, id)
		}
	}
	return without
}

// status returns how the partitions do, once all are served.
func (n *live) status() []streamer.PartitionStatus {
	n.Helper()
	var all []streamer.PartitionStatus
	n.until("all partitions are served", func() bool {
		all = n.service.Node().Status()
		return len(all) == partitions
	})
	return all
}

// metric returns the sum of a metric over its labels.
func (n *live) metric(name string) (sum float64) {
	n.Helper()
	families, err := n.service.Metrics().Gather()
	if err != nil {
		n.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// hasGaps waits until there are gaps in the gap log.
func (n *live) hasGaps() {
	n.Helper()
	n.until("the gap log has a loss", func() bool { return len(n.gaps()) > 0 })
}

// gaps returns the gap log.
func (r *rig) gaps() []checkpoint.Gap {
	r.Helper()
	gaps, err := r.store.Gaps(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	return gaps
}

// kept returns the losses of everybody, in the gap log, and those of single subscribers, in their
// checkpoints.
func (r *rig) kept() []checkpoint.Gap {
	r.Helper()
	all := r.gaps()
	rows, err := r.store.List(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range rows {
		for _, g := range c.Losses {
			if !slices.ContainsFunc(all, func(known checkpoint.Gap) bool { return known.ID() == g.ID() }) {
				all = append(all, g)
			}
		}
	}
	return all
}

// stored returns where a subscriber is in each partition, by the checkpoints past the nodes.
func (r *rig) stored(subscriber string) map[change.Partition]checkpoint.Checkpoint {
	r.Helper()
	saved, err := r.store.Load(context.Background(), subscriber)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.Error(err)
	}
	stored := make(map[change.Partition]checkpoint.Checkpoint)
	for _, c := range saved {
		if c.Shared {
			stored[c.Partition] = c
			continue
		}
		for p := range change.Partition(partitions) {
			in := c
			in.Position = c.In(p)
			stored[p] = in
		}
	}
	return stored
}

// first returns the time of the log's oldest entry.
func (r *rig) first() change.Timestamp {
	r.Helper()
	return r.entry(bson.D{}, 1)
}

// written returns the time of the newest entry of the log about the collection that these tests
// write to.
func (r *rig) written() change.Timestamp {
	r.Helper()
	return r.entry(bson.D{{Key: "ns", Value: "shop.orders"}}, -1)
}

// entry returns the time of the first entry of the log that matches, in an order.
func (r *rig) entry(filter bson.D, order int) change.Timestamp {
	r.Helper()
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	opts := options.FindOne().SetSort(bson.D{{Key: "$natural", Value: order}}).SetProjection(bson.D{{Key: "ts", Value: 1}})
	if err := r.client.Database("local").Collection("oplog.rs").FindOne(r.Context(), filter, opts).Decode(&entry); err != nil {
		r.Fatal(err)
	}
	return change.Timestamp{T: entry.TS.T, I: entry.TS.I}
}

// earliest returns the time at which the log can be read from: that of its first entry, or behind
// it on a server of release 4.4, which wants an entry before.
func (r *rig) earliest(release string) change.Timestamp {
	r.Helper()
	if release == "4.4" {
		return r.first().Next()
	}
	return r.first()
}

// posted returns the kinds of the notices that operators got on a channel.
func (n *live) posted(on notice.Channel) (kinds []string) {
	all, _ := n.service.Board().Since(0)
	for _, p := range all {
		if p.Channel == on {
			kinds = append(kinds, p.Kind)
		}
	}
	return kinds
}

// goesOn waits until a new document has arrived, which shows that the node is live.
func (n *live) goesOn() {
	n.Helper()
	id := "live " + rand.Text()
	n.insert(id)
	n.sees(id)
}

// saved waits until the checkpoint of the shared subscriber has reached the time in every
// partition.
func (n *live) saved(at change.Timestamp) {
	n.Helper()
	n.until("checkpoints reach "+at.String(), func() bool { return n.reached(sharedName, at) })
}

// reached reports whether a subscriber's checkpoint has reached the time in every partition.
func (r *rig) reached(subscriber string, at change.Timestamp) bool {
	r.Helper()
	stored := r.stored(subscriber)
	for _, c := range stored {
		if c.Position.Time.Compare(at) < 0 {
			return false
		}
	}
	return len(stored) == partitions
}

// now returns the server's operation time.
func (r *rig) now() change.Timestamp {
	t := r.server.ClusterTime()
	return change.Timestamp{T: uint32(t >> 32), I: uint32(t)}
}
