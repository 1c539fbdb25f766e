package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// A server is one that a test starts and ends as it likes; what runs when the test ends is ended.
type server struct {
	t   *testing.T
	end func()
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, end: func() {}}
	t.Cleanup(func() { s.end() })
	return s
}

func (s *server) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- run(ctx) }()
	s.end = func() {
		cancel()
		if err := <-stopped; err != nil {
			s.t.Errorf("server: %v", err)
		}
		s.end = func() {}
	}
}

func (s *server) runEtcd(dir, address string) {
	s.t.Helper()
	s.run(listen(s.t, func() (*devetcd.Server, error) { return devetcd.Listen(devetcd.Config{Dir: dir, Listen: address}) }).Run)
}

func (s *server) runMongo(snapshot, address string) {
	s.t.Helper()
	s.run(listen(s.t, func() (*devmongo.Server, error) {
		return devmongo.Listen(devmongo.Config{Addr: address, Snapshot: snapshot, HelloAwait: 500 * time.Millisecond})
	}).Run)
}

// listen starts a server on an address that was in use until now: a process that is being started
// holds what was open for a moment longer.
func listen[S any](t *testing.T, start func() (S, error)) (server S) {
	t.Helper()
	var err error
	if !comes(func() bool {
		server, err = start()
		return !errors.Is(err, syscall.EADDRINUSE)
	}) || err != nil {
		t.Fatal(err)
	}
	return server
}

// runs lets a node print what there is until so many lines have come, and stops it.
func (l *lab) runs(lines int, args ...string) []string {
	l.t.Helper()
	p := start(l.t, launch{args: append([]string{"run", "-o", "json"}, args...), env: l.settings})
	p.await(nodeRuns)
	until(l.t, "everything is printed", func() bool { return len(p.output.all()) >= lines })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		l.t.Fatalf("exit code %d", code)
	}
	return p.output.all()
}

// etcd is restored from a copy of its folder while a node from before is still there. Before
// anything else the operator adopts the marks: nothing that the node from before saves can touch
// them, and what the restored marks do not know of is delivered again.
func TestClusterIsAdoptedAfterEtcdWasRestored(t *testing.T) {
	t.Parallel()
	address, dir, backup := devmongotest.FreeAddress(), t.TempDir(), t.TempDir()
	base, _ := newDevLab(t, "mongo") // its MongoDB; the marks are in the etcd of this test
	etcd := newServer(t)
	etcd.runEtcd(dir, address)
	l := base.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND=etcd", "STREAMER_ETCD_ENDPOINTS="+address, "STREAMER_CLUSTER_LEASE_TTL=30s",
		"STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	first := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	first.await(nodeRuns)
	l.insert(0, 100)
	until(t, "all is printed", func() bool { return len(first.output.all()) == 100 })
	first.signal(syscall.SIGTERM)
	first.wait()
	etcd.end()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	etcd.runEtcd(dir, address)
	survivor := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	survivor.await(nodeRuns)
	l.insert(100, 200)
	until(t, "all is printed", func() bool { return len(survivor.output.all()) == 100 })
	etcd.end()
	etcd.runEtcd(backup, address)

	before := l.show()
	plan := l.result("cluster", "adopt", "--dry-run")
	if !strings.Contains(plan, "incarnation 1") || l.list().Origin.Incarnation != 1 {
		t.Errorf("%s", plan)
	}
	done := decode[adoptResult](t, l.result("cluster", "adopt", "--yes", "-o", "json"))
	if !done.Done || done.Stands.Incarnation != 2 || len(done.Ahead) != 0 {
		t.Errorf("%+v", done)
	}
	survivor.refused(fault.NodeTermLost)
	for i, m := range l.show() {
		if m.Position != before[i].Position {
			t.Errorf("partition %d was at %+v and is at %+v", i, before[i].Position, m.Position)
		}
	}
	again := l.with("STREAMER_NODE_ID=second").runs(100, "--take-over")
	if got := described(byDocument(sightings(t, again))); strings.Contains(got, "insert 99,") || strings.Count(got, "insert") != 100 {
		t.Errorf("%s", got)
	}
	for _, m := range l.show() {
		if !strings.HasPrefix(m.Epoch, "2.") {
			t.Errorf("partition %d was marked under epoch %s", *m.Partition, m.Epoch)
		}
	}
}

type adoptResult struct {
	Done   bool
	Ahead  []shown
	To     position
	Stands struct{ Incarnation int }
}

// MongoDB is restored from a snapshot, so that the marks in etcd are of a log that is no more. A
// node does not touch them; adopting moves them back, says so in the gap log, and the node goes on.
func TestClusterIsAdoptedAfterMongoDBWasRestored(t *testing.T) {
	t.Parallel()
	address := devmongotest.FreeAddress()
	snapshot, backup := filepath.Join(t.TempDir(), "now"), filepath.Join(t.TempDir(), "then")
	server := newServer(t)
	server.runMongo(snapshot, address)
	l := labOn(t, "etcd", "mongodb://"+address+"/?replicaSet=rs0")
	l.insert(0, 100)
	restored := l.now()
	server.end()
	if err := copyFile(snapshot, backup); err != nil {
		t.Fatal(err)
	}
	server.runMongo(snapshot, address)
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms").settings})
	p.await(nodeRuns)
	// Only whole seconds tell whether a position is ahead.
	n := 100
	until(t, "a later second", func() bool {
		l.insert(n, n+1)
		n++
		return l.now().T > restored.T+1
	})
	l.insert(n, n+500)
	until(t, "all is printed", func() bool { return len(p.output.all()) == n+500-100 })
	p.signal(syscall.SIGTERM)
	p.wait()
	server.end()
	server.runMongo(backup, address)

	p = l.node()
	p.await(string(fault.LogAhead))
	until(t, "the partitions have failed", func() bool {
		return decode[report](t, ask(t, p.address()+"/health").body).Status == "unhealthy"
	})
	p.signal(syscall.SIGTERM)
	p.wait()
	marks := l.stored()

	plan := l.result("cluster", "adopt", "--dry-run")
	unchangedCheckpoints(t, marks, l.stored())
	if !strings.Contains(strings.Join(strings.Fields(plan), " "), "checkpoints ahead 16 they go back to") {
		t.Errorf("%s", plan)
	}
	done := decode[adoptResult](t, l.result("cluster", "adopt", "--yes", "--to", position{T: restored.T, I: restored.I + 1}.target(), "-o", "json"))
	if !done.Done || done.Stands.Incarnation != 2 || len(done.Ahead) != partitions {
		t.Errorf("%+v", done)
	}
	for _, m := range l.show() {
		if m.Generation != 1 || m.Reason != checkpoint.ReasonRewind || m.Position.T != restored.T {
			t.Errorf("%+v", m)
		}
	}
	lost := decode[struct {
		Gaps []struct {
			From   position `json:"lost_from"`
			To     position `json:"lost_to"`
			Reason string
		}
	}](t, l.result("gaps", "-o", "json")).Gaps
	if len(lost) != 1 {
		t.Fatalf("%d gaps", len(lost))
	}
	for p, c := range marks { // what nobody has any more ends where the latest of them was
		if g := lost[0]; g.Reason != "ahead_of_server" || g.To.T != restored.T || c.Position.Time.Compare(change.Timestamp{T: g.From.T, I: g.From.I}) > 0 {
			t.Errorf("%+v, the checkpoint of partition %d was at %s", g, p, c.Position)
		}
	}
	if human := l.result("gaps"); strings.Count(human, "ahead_of_server") != 1 {
		t.Errorf("%s", human)
	}

	l.insert(9000, 9010)
	again := l.runs(1 + 10)
	if got := described(sightings(t, again)); strings.Count(got, "insert 90") != 10 || len(rewoundPartitions(t, again)) != partitions {
		t.Errorf("%s", got)
	}
}

func unchangedCheckpoints(t *testing.T, before, after map[change.Partition]checkpoint.Checkpoint) {
	t.Helper()
	for p, m := range before {
		if after[p].Position.Compare(m.Position) != 0 || after[p].Generation != m.Generation {
			t.Errorf("%+v became %+v", m, after[p])
		}
	}
}

// now returns the operation time of the lab's MongoDB.
func (l *lab) now() (now change.Timestamp) {
	l.t.Helper()
	err := l.client.UseSession(l.t.Context(), func(ctx context.Context) error {
		err := l.client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
		if at := mongo.SessionFromContext(ctx).OperationTime(); at != nil {
			now = change.Timestamp{T: at.T, I: at.I}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return now
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
