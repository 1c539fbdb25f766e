//go:build prove

package process

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// A thousand subscribers that load one snapshot at once, each over a connection of its own, stay
// within gateway.queue_bytes, and their node within the memory that goes with it.
func TestProveThousandReadersOfASnapshotStayWithinTheBudget(t *testing.T) {
	const readers, documents, size, budget = 1000, 2000, 1000, 64 << 20
	const most = 2 * (budget + readers*192<<10) // a connection has 128 KiB while it writes; as much again is collected later
	l, _ := newDevLab(t, "etcd")
	address := devmongotest.FreeAddress()
	l = l.with(fmt.Sprintf("STREAMER_GATEWAY_QUEUE_BYTES=%dMiB", budget>>20), "STREAMER_RESCAN_RATE=1000000", "STREAMER_GATEWAY_MAX_SESSIONS=2000", "STREAMER_GRPC_LISTEN="+address)
	all := make([]any, documents)
	for i := range all {
		all[i] = bson.D{{Key: "_id", Value: i}, {Key: "pad", Value: strings.Repeat("x", size)}}
	}
	if _, err := l.collection().InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	p := l.node()
	p.await(nodeRuns)
	idle := resident(t, p, "RssAnon:") << 10

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var received atomic.Int64
	var complete sync.WaitGroup
	for i := range readers {
		complete.Add(1)
		var once sync.Once
		c, err := client.New(client.Config{
			Addresses: []string{address}, Subscriber: fmt.Sprint("reader", i), Start: client.StartSnapshot, Logger: slog.New(slog.DiscardHandler),
			OnNotice: func(_ context.Context, n client.Notice) error {
				if _, done := n.(client.SnapshotDone); done {
					once.Do(complete.Done)
				}
				return nil
			},
		})
		if err == nil {
			err = c.Subscribe(client.Subscription{ID: "all", DB: l.database, Coll: "orders"}, func(_ context.Context, c client.Change) error {
				if c.Snapshot {
					received.Add(1)
				}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() { complete.Wait(); close(done) }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	held, memory := 0, idle
	for loads := true; loads; {
		held, memory = max(held, int(metric(t, p.address(), "streamer_hub_held_bytes"))), max(memory, resident(t, p, "RssAnon:")<<10)
		select {
		case <-done:
			loads = false
		case <-look.C:
		}
	}
	t.Logf("%d documents for %d readers; MiB: %.1f held at most, of %d; resident %.1f idle, %.1f at most, %.1f at the end",
		received.Load(), readers, mib(held), budget>>20, mib(idle), mib(memory), mib(resident(t, p, "RssAnon:")<<10))
	if n := received.Load(); n != readers*documents {
		t.Errorf("%d documents came, want %d", n, readers*documents)
	}
	if held > budget {
		t.Errorf("%d bytes are held, the budget is %d", held, budget)
	}
	if memory-idle > most {
		t.Errorf("the node took %d bytes more, at most %d are right", memory-idle, most)
	}
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }
