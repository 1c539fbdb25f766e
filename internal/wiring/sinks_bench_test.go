package wiring

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/devbroker"
	"github.com/mongostream/streamer/internal/devmongo"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
)

// BenchmarkSinks compares a node's sink, which reads a backlog from a development MongoDB, with a loop that publishes the same values, in the same
// process and to the same broker.
func BenchmarkSinks(b *testing.B) {
	events := 100_000
	if testing.Short() {
		events = 2_000
	}
	for _, target := range []string{"kafka", "transactions", "nats"} {
		b.Run(target, func(b *testing.B) {
			for range b.N {
				node, bare := race(b, target, events)
				b.ReportMetric(float64(events)/node.Seconds(), "events/s")
				b.ReportMetric(float64(events)/bare.Seconds(), "bare/s")
				b.ReportMetric(bare.Seconds()/node.Seconds(), "ratio")
			}
		})
	}
}

func race(b *testing.B, target string, events int) (node, bare time.Duration) {
	b.Helper()
	server := devmongotest.Start(b, devmongo.Config{OplogBytes: 1 << 30})
	client, err := mongoClient(server.URI())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	coll := client.Database("shop").Collection("orders")
	for from := 0; from < events; from += 1000 {
		docs := make([]any, 0, 1000)
		for id := from; id < from+1000; id++ {
			docs = append(docs, bson.D{{Key: "_id", Value: id}, {Key: "pad", Value: fmt.Sprintf("%064d", id)}})
		}
		if _, err := coll.InsertMany(b.Context(), docs); err != nil {
			b.Fatal(err)
		}
	}
	value := fmt.Appendf(nil, "%0400d", 1) // about what a change takes
	var settings string
	var publish func() error
	switch target {
	case "nats":
		s, err := devbroker.StartNATS(b.TempDir(), 0)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Stop()
		_, conn, err := s.Stream(b.Context(), "changes", "changes.>")
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		settings = "type: nats\n    nats: {url: '" + s.URL() + "', subject: 'changes.{db}.{coll}'}\n"
		publish = func() error {
			js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(16<<10))
			if err != nil {
				return err
			}
			for i := range events {
				m := &nats.Msg{Subject: "changes.bare.x", Data: value, Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}}
				if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
					return err
				}
			}
			<-js.PublishAsyncComplete()
			return nil
		}
	default:
		k, err := devbroker.StartKafka(4)
		if err != nil {
			b.Fatal(err)
		}
		defer k.Close()
		settings = fmt.Sprintf("type: kafka\n    kafka: {brokers: ['%s'], create_topics: true, transactional: %t}\n", k.ListenAddrs()[0], target == "transactions")
		publish = func() error {
			c, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.AllowAutoTopicCreation(), kgo.MaxBufferedRecords(64<<10), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
			if err != nil {
				return err
			}
			defer c.Close()
			var wg sync.WaitGroup
			wg.Add(events)
			for i := range events {
				c.Produce(b.Context(), &kgo.Record{Topic: "bare", Key: fmt.Append(nil, i), Value: value}, func(*kgo.Record, error) { wg.Done() })
			}
			wg.Wait()
			return nil
		}
	}
	begun := time.Now()
	if err := publish(); err != nil {
		b.Fatal(err)
	}
	bare = time.Since(begun)

	file := filepath.Join(b.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("sinks:\n  - name: out\n    start: earliest\n    losses: changes.losses\n    "+settings), 0o600); err != nil {
		b.Fatal(err)
	}
	cfg, err := config.Load(file, []string{
		"STREAMER_MONGODB_URI=" + server.URI(), "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo", "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0",
		"STREAMER_LOG_LEVEL=error",
	})
	if err != nil {
		b.Fatal(err)
	}
	service, err := Assemble(b.Context(), Options{Config: cfg, Process: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	first := uint64(0) // what had been published when the clock started: a node takes a while to begin
	for at := uint64(0); at < uint64(events); at = service.sinks[0].Status().Published {
		if first == 0 && at > 0 {
			first, begun = at, time.Now()
		}
		select {
		case <-look.C:
		case err := <-ended:
			b.Fatal(err)
		}
	}
	node = time.Duration(float64(time.Since(begun)) * float64(events) / float64(uint64(events)-first))
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return node, bare
}
