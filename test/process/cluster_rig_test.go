package process

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// fleetTTL is the life of leases in tests of clusters, and fleetDeadline how long terms outlive the
// last renewal at most. Who is made slow by the race detector renews late now and then.
const (
	fleetTTL      = 3 * time.Second * pace
	fleetDeadline = fleetTTL - fleetTTL/3
)

// unhurried is for fleets of which no lease is to expire, as it would where a busy machine holds a
// renewal up for the fleetTTL.
const unhurried = "STREAMER_CLUSTER_LEASE_TTL=1m"

// fleets holds a place for each fleet that runs: what is to happen in time needs processors to
// happen on.
var fleets = make(chan struct{}, 4) //nolint:gochecknoglobals // all tests of the process share them

// A fleet is a cluster of nodes, each a process that prints what it owns, and each with a way of
// its own to etcd.
type fleet struct {
	t      *testing.T
	lab    *lab
	config string   // the file that configures its nodes, empty for none
	etcd   string   // its endpoint
	direct []string // endpoints that nodes reach without a link, if any
	dir    string   // of the fleet's own etcd, empty where it is the lab's
	server *server
	tapped bool          // marks in MongoDB go through taps too: it must be a development one
	roster cluster.Store // past all links
	ships  []*ship

	ledger  workload.Ledger
	printed *workload.Check // of what all nodes print

	mu     sync.Mutex
	prints []printed
}

// A ship is one of the nodes, with the same name and addresses in each life.
type ship struct {
	*process

	fleet      *fleet
	name       string
	grpc, http string
	link       *etcdtest.Link // to etcd
	near, far  *tap           // of marks on their way to where they are kept, on both sides of the link to it
	marks      *etcdtest.Link
	lab        *lab
}

// A printed event: which node has printed it when.
type printed struct {
	by        string
	partition change.Partition
	at        time.Time
	written   time.Time // by the workload
}

// newFleet makes a fleet of n nodes, and starts none.
func newFleet(t *testing.T, backend string, n int, settings ...string) *fleet {
	t.Helper()
	return fleetOn(t, newLab(t, backend), n, settings...)
}

// fleetOn makes a fleet in a lab. Where that keeps its marks elsewhere, the fleet has an etcd of
// its own.
func fleetOn(t *testing.T, l *lab, n int, settings ...string) *fleet {
	t.Helper()
	f := plan(t, l, settings...)
	f.build(n)
	return f
}

// tappedFleet makes a fleet with taps before its marks, wherever they are.
func tappedFleet(t *testing.T, backend string, n int) *fleet {
	t.Helper()
	l, _ := newDevLab(t, backend)
	f := plan(t, l)
	f.tapped = true
	f.build(n)
	return f
}

// plan makes a fleet without nodes.
func plan(t *testing.T, l *lab, settings ...string) *fleet {
	t.Helper()
	fleets <- struct{}{}
	t.Cleanup(func() { <-fleets })
	f := &fleet{t: t}
	f.printed = workload.NewCheck(&f.ledger)
	var prefix string
	if m, there := l.store.(*etcdStore); there {
		f.etcd, prefix = m.endpoints[0], m.prefix
	} else {
		f.etcd, f.dir, f.server, prefix = "http://"+devmongotest.FreeAddress(), t.TempDir(), newServer(t), "/test"
		f.startEtcd(f.dir)
	}
	f.lab = l.with("STREAMER_CLUSTER_LEASE_TTL="+fleetTTL.String(),
		"STREAMER_CLUSTER_SETTLE_TIME=2s", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=200ms",
		"STREAMER_ETCD_PREFIX="+prefix, "STREAMER_ETCD_ENDPOINTS="+f.etcd).with(settings...)
	endpoints := []string{f.etcd}
	if m, there := l.store.(*etcdStore); there {
		endpoints = m.endpoints
	}
	client, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: endpoints, Prefix: prefix, Cluster: l.cluster, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	f.roster = etcd.NewClusterStore(client, etcd.ClusterConfig{Partitions: partitions})
	return f
}

// build adds so many nodes.
func (f *fleet) build(n int) {
	f.t.Helper()
	f.lab = f.lab.with(fmt.Sprintf("STREAMER_CLUSTER_EXPECTED_NODES=%d", n))
	for i := range n {
		f.add(fmt.Sprintf("node-%d", i+1))
	}
}

// startEtcd starts the fleet's own etcd in a folder, with what is there.
func (f *fleet) startEtcd(dir string) { f.server.runEtcd(dir, strings.TrimPrefix(f.etcd, "http://")) }

// add adds a node.
func (f *fleet) add(name string, settings ...string) *ship {
	f.t.Helper()
	s := &ship{fleet: f, name: name, grpc: devmongotest.FreeAddress(), http: devmongotest.FreeAddress()}
	var endpoint string
	_, inEtcd := f.lab.store.(*etcdStore)
	switch {
	case len(f.direct) > 0:
		endpoint = strings.Join(f.direct, ",")
	case inEtcd:
		endpoint = s.tapMarks(strings.TrimPrefix(f.etcd, "http://"), `checkpoint/shared/`+printer+`/\d{5}`)
		s.link = s.marks
	default:
		s.link, endpoint = etcdtest.NewLink(f.t, strings.TrimPrefix(f.etcd, "http://"))
	}
	s.lab = f.lab.with("STREAMER_NODE_ID="+name, "STREAMER_GRPC_LISTEN="+s.grpc, "STREAMER_HTTP_LISTEN="+s.http,
		"STREAMER_ETCD_ENDPOINTS="+endpoint)
	if m, inMongo := f.lab.store.(*mongoStore); inMongo && f.tapped {
		at, err := url.Parse(f.lab.uri)
		if err != nil {
			f.t.Fatal(err)
		}
		address := s.tapMarks(at.Host, `(?s)(?:find|update)\x00.{4}`+regexp.QuoteMeta(m.lab.cluster)+`\.checkpoints\x00`)
		s.lab = s.lab.with("STREAMER_MONGODB_URI=mongodb://" + address + "/?directConnection=true")
	}
	s.lab = s.lab.with(settings...)
	f.ships = append(f.ships, s)
	return s
}

// tapMarks puts a link between two taps before where marks are kept, and returns where the node
// finds it now.
func (s *ship) tapMarks(upstream, text string) (address string) {
	s.fleet.t.Helper()
	s.far = newTap(s.fleet.t, upstream, text)
	s.marks, address = etcdtest.NewLink(s.fleet.t, s.far.address)
	s.near = newTap(s.fleet.t, address, text)
	return s.near.address
}

// launch starts a node.
func (s *ship) launch() {
	s.fleet.t.Helper()
	var args []string
	if s.fleet.config != "" {
		args = []string{"--file", s.fleet.config}
	}
	s.process = s.lab.printer(func(line string) { s.fleet.take(s.name, line) }, args...)
}

func (s *ship) url() string { return "http://" + s.http }

// take takes a line that a node prints.
func (f *fleet) take(by, line string) {
	now := time.Now()
	took, err := f.printed.Timed([]byte(line), now)
	if err != nil {
		f.t.Errorf("%s: %v", by, err)
		return
	}
	var e struct{ Partition change.Partition }
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prints = append(f.prints, printed{by, e.Partition, now, now.Add(-took)})
}

// begin starts all nodes and waits until they have shared the partitions.
func (f *fleet) begin() {
	f.t.Helper()
	for _, s := range f.ships {
		s.launch()
	}
	f.settled(nil, patience)
}

// write writes until the test ends, or stop is called, which returns when everything is written.
func (f *fleet) write(rate int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		cfg := workload.Config{URI: f.lab.uri, DB: f.lab.database, Rate: rate, Workers: 2}
		if err := workload.NewWriter(cfg, &f.ledger).Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		writing.Wait()
	}
	f.t.Cleanup(stop)
	return stop
}

// view looks at the cluster as it stands in etcd.
func (f *fleet) view() cluster.View {
	f.t.Helper()
	view, err := f.roster.View(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return view
}

// settled waits until every partition has an owner that reports to serve it, under another epoch
// than before, and returns the epochs.
func (f *fleet) settled(before map[change.Partition]change.Epoch, within time.Duration) map[change.Partition]change.Epoch {
	f.t.Helper()
	var view cluster.View
	if !comesWithin(within, func() bool {
		if seen, err := f.roster.View(f.t.Context()); err == nil { // at first there is no origin
			view = seen
		}
		return served(view, before)
	}) {
		f.t.Fatalf("not every partition is served in time: %s", encode(f.t, view))
	}
	return epochs(view, "")
}

// epochs are those of the partitions that a node owns, or of all of them.
func epochs(view cluster.View, node string) map[change.Partition]change.Epoch {
	all := map[change.Partition]change.Epoch{}
	for p, o := range view.Owners {
		if node == "" || o.Node == node {
			all[change.Partition(p)] = o.Epoch
		}
	}
	return all
}

// served reports whether every partition is served by its owner's account, and none under an epoch
// of before.
func served(view cluster.View, before map[change.Partition]change.Epoch) bool {
	for i, owner := range view.Owners {
		p := change.Partition(i)
		old, had := before[p]
		told := slices.ContainsFunc(view.Members, func(s cluster.Member) bool {
			return s.Process == owner.Process && slices.ContainsFunc(s.Held, func(h cluster.HeldPartition) bool {
				return h.Partition == p && h.Epoch == owner.Epoch && h.State != string(cluster.StatusStarting)
			})
		})
		if owner == (cluster.Owner{}) || had && old == owner.Epoch || !told {
			return false
		}
	}
	return len(view.Owners) == partitions
}

// owning waits for a node that leads, or does not, and owns something, and returns the one with the
// most partitions.
func (f *fleet) owning(leads bool) (best *ship, owned map[change.Partition]change.Epoch) {
	f.t.Helper()
	until(f.t, "somebody owns something", func() bool {
		view := f.view()
		for _, s := range f.ships {
			if has := epochs(view, s.name); (s.name == view.Leader) == leads && len(has) > len(owned) {
				best, owned = s, has
			}
		}
		return best != nil
	})
	return best, owned
}

// again waits until every partition of those is printed after a moment by another node than who had
// them, and returns how long after it the last one was.
func (f *fleet) again(those map[change.Partition]change.Epoch, had string, since time.Time) time.Duration {
	f.t.Helper()
	var last time.Duration
	if !comes(func() bool {
		first := map[change.Partition]time.Duration{}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, p := range slices.Backward(f.prints) {
			if p.at.Before(since) {
				break
			}
			if _, was := those[p.partition]; was && p.by != had {
				first[p.partition] = p.at.Sub(since)
			}
		}
		for _, d := range first {
			last = max(last, d)
		}
		return len(first) == len(those)
	}) {
		f.t.Fatal("not every partition is delivered again")
	}
	return last
}

// comesWithin waits for what a look at the outside tells, and reports whether it came in time.
func comesWithin(within time.Duration, holds func() bool) bool {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timeout.C:
			return false
		}
	}
	return true
}

// between returns what nodes have printed after one moment and before another, of what was written
// after a moment. What is read from a node's pipe after a deadline may have been printed before it:
// only what was written after the deadline was surely printed after it.
func (f *fleet) between(written, from, to time.Time) (some []printed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.prints {
		if p.written.After(written) && p.at.After(from) && p.at.Before(to) {
			some = append(some, p)
		}
	}
	return some
}

// judge waits until everything that was written has been printed, ends the nodes and looks at what
// they have printed.
func (f *fleet) judge() {
	f.t.Helper()
	until(f.t, "everything is printed", func() bool { return f.printed.Missing() == 0 })
	for _, s := range f.ships {
		if s.process != nil {
			s.await(nodeRuns) // one that has only begun does not know of signals yet
			s.signal(syscall.SIGTERM)
		}
	}
	for _, s := range f.ships {
		if s.process != nil && s.wait() != 0 {
			f.t.Errorf("%s: exit code %d of the planned stop at the end", s.name, s.cmd.ProcessState.ExitCode())
		}
	}
	r := f.printed.Report()
	f.t.Logf("%+v", r)
	if r.OutOfOrder != 0 || r.Written == 0 {
		f.t.Errorf("%+v", r)
	}
}

// moved returns the partitions that have another owner in the second view than in the first.
func moved(a, b cluster.View) (some []change.Partition) {
	for p := range a.Owners {
		if a.Owners[p] != b.Owners[p] {
			some = append(some, change.Partition(p))
		}
	}
	return some
}

// addresses are where gateways reach the nodes.
func (f *fleet) addresses() (all []string) {
	for _, s := range f.ships {
		all = append(all, s.grpc)
	}
	return all
}

// marksNotBy waits until the marks of partitions are those of other nodes than one.
func (f *fleet) marksNotBy(node string, those map[change.Partition]change.Epoch) {
	f.t.Helper()
	until(f.t, "the new owners have saved marks", func() bool {
		stored := f.lab.stored()
		for p := range maps.Keys(those) {
			if m, there := stored[p]; !there || m.By == node {
				return false
			}
		}
		return true
	})
}
