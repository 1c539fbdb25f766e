package process

import (
	"context"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/workload"
)

// The first start writes where it began before it delivers anything, so that a crash before the
// first mark loses nothing.
func TestNothingSinceTheFirstStartIsMissingAfterACrashWithoutMarks(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend).with("STREAMER_START_FROM=now", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=1h",
				"STREAMER_RELIABILITY_CHECKPOINT_EVENT_COUNT=1000000000")
			l.insert(-100, 0) // before the first start: not asked for
			var ledger workload.Ledger
			writing, stop := context.WithCancel(t.Context())
			var writer sync.WaitGroup
			defer writer.Wait()
			defer stop()

			p := l.node()
			p.await("first start: shared subscribers without a checkpoint begin here")
			writer.Go(func() {
				cfg := workload.Config{URI: l.uri, DB: l.database, Coll: "first", Rate: 200}
				if err := workload.NewWriter(cfg, &ledger).Run(writing); err != nil {
					t.Error(err)
				}
			})
			moment := time.NewTimer(time.Until(p.begun.Add(4 * time.Second)))
			defer moment.Stop()
			select {
			case <-moment.C:
			case <-p.ended:
				t.Fatal("the process ended by itself")
			}
			p.kill()
			if len(l.stored()) > 0 { // the first of each partition is saved at once
				l.result("subscribers", "delete", printer, "--yes")
			}
			if all := l.stored(); len(all) > 0 {
				t.Fatalf("%d checkpoints are left; this test is about none", len(all))
			}

			check := workload.NewCheck(&ledger)
			p = l.printer(func(line string) {
				if err := check.JSON([]byte(line), time.Now()); err != nil {
					t.Errorf("what was written before the first start, or nobody's: %v", err)
				}
			}, "--take-over")
			p.await(nodeRuns)
			stop()
			writer.Wait()
			until(t, "everything since the first start arrives", func() bool { return check.Missing() == 0 })
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if r := check.Report(); r.OutOfOrder != 0 || r.Duplicates != 0 || r.Delivered != r.Written {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Several changes of one document within a second, and within a transaction, are several events to
// everybody.
func TestEveryChangeOfADocumentIsAnEvent(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	orders := l.collection()
	if err := l.client.Database(l.database).CreateCollection(t.Context(), "orders"); err != nil {
		t.Fatal(err) // a transaction does not make collections everywhere
	}
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	ctx, stop := context.WithCancel(t.Context())
	followed := newJournal()
	f := newFollower(p.address(), func(data string) error { followed.add(data, false); return nil })
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { f.run(ctx) })
	until(t, "the follower is connected", func() bool { return f.connected() > 0 })

	session, err := l.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	set := func(ctx context.Context, id, seq int) error {
		_, err := orders.UpdateByID(ctx, id, bson.D{{Key: "$set", Value: bson.D{{Key: "seq", Value: seq}}}})
		return err
	}
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "seq", Value: 1}}); err != nil {
			return nil, err
		}
		if err := set(ctx, 1, 2); err != nil {
			return nil, err
		}
		_, err := orders.DeleteOne(ctx, bson.D{{Key: "_id", Value: 1}})
		return nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.insert(2, 3)
	before := time.Now()
	for seq := range 2 {
		if err := set(ctx, 2, seq+2); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("two updates within %v", time.Since(before))
	l.insert(3, 4)

	const want = "insert 1, update 1, delete 1, insert 2, update 2, update 2, insert 3"
	journals := map[string]*journal{"standard output": p.output, "/v1/events": followed}
	for name, j := range journals {
		until(t, "seven events on "+name, func() bool { return len(j.all()) >= 7 })
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	for name, j := range journals {
		// Partitions are printed side by side: document by document the order is the log's.
		if got := described(byDocument(sightings(t, j.all()))); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

// A node is killed and started again at once, while etcd restarts, which renews the lease of the
// killed one: it waits for etcd and for that lease, and goes on.
func TestKilledNodeStartsBesideARestartOfEtcd(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before it is started", "while it waits"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			etcd, dir, address := newServer(t), t.TempDir(), devmongotest.FreeAddress()
			etcd.runEtcd(dir, address)
			l := labOn(t, "etcd", devmongotest.URI(t), "http://"+address).with("STREAMER_CLUSTER_LEASE_TTL=30s", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
			p := l.node()
			p.await(nodeRuns)
			l.insert(0, 10)
			until(t, "a checkpoint is saved", func() bool { return len(l.stored()) == partitions })
			p.kill()
			restart := func() {
				etcd.end()
				etcd.runEtcd(dir, address)
			}
			if when == "before it is started" {
				restart()
			}
			again := l.node()
			if when == "while it waits" {
				again.await("waiting for its claim")
				restart()
			}
			again.await(nodeRuns)
			l.insert(10, 20)
			until(t, "it goes on", func() bool { return len(again.output.all()) >= 10 })
		})
	}
}

// A node without a gRPC server serves everybody else.
func TestNodeRunsWithoutGRPC(t *testing.T) {
	t.Parallel()
	l, _ := newDevLab(t, "etcd")
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.with("STREAMER_GRPC_LISTEN=").settings})
	p.await(nodeRuns)
	until(t, "the node is ready", func() bool { return ask(t, p.address()+"/readyz").status == http.StatusOK })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
