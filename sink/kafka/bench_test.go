package kafka_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/change"
	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

// BenchmarkPublish publishes changes of 400 bytes of 64 partitions to a broker in the same process.
func BenchmarkPublish(b *testing.B) {
	cluster, err := devbroker.StartKafka(4)
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	to, err := kafka.New(kafka.Config{Brokers: cluster.ListenAddrs(), Topic: "changes", Losses: "losses", Create: true})
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	var published sync.WaitGroup
	messages := make([]*sink.Message, 10_000)
	for i := range messages {
		m := message("orders", i, 1)
		m.Partition, m.ID, m.Key = change.Partition(i%64), strings.Repeat("i", 60), fmt.Append(nil, i)
		m.Value = []byte(strings.Repeat("x", 400))
		sink.Report(m, func(err error) {
			if err != nil {
				b.Error(err)
			}
			published.Done()
		})
		messages[i] = m
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(messages) {
		published.Add(len(messages))
		for _, m := range messages {
			to.Publish(b.Context(), m)
		}
		published.Wait()
	}
}
