package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

func TestRecordsAreCompressedAsConfigured(t *testing.T) {
	t.Parallel()
	for compression, want := range map[string]uint8{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4} {
		at := brokers(t)
		to := opened(t, kafka.Config{Brokers: at, Topic: "{db}.{coll}", Losses: "losses", Create: true, Compression: compression})
		m := message("orders", 1, 1)
		m.Value = []byte(strings.Repeat("well to compress ", 1000))
		if err := sink.One(t.Context(), to, m); err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(at...), kgo.ConsumeTopics("shop.orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		fetches := client.PollFetches(ctx)
		records := fetches.Records()
		if len(records) != 1 || records[0].Attrs.CompressionType() != want {
			t.Errorf("%s: %d records, of the compression %v", compression, len(records), records)
		}
		cancel()
		client.Close()
	}
}

// A record that the broker does not take for now is given up after Timeout.
func TestRecordsAreGivenUpAsConfigured(t *testing.T) {
	t.Parallel()
	k := topics(t, map[string]string{"shop.orders": "1000000"})
	k.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		request := r.(*kmsg.ProduceRequest)                        //nolint:forcetypeassert // of this key
		response := request.ResponseKind().(*kmsg.ProduceResponse) //nolint:forcetypeassert // likewise
		for _, topic := range request.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				refused := kmsg.NewProduceResponseTopicPartition()
				refused.Partition, refused.ErrorCode = partition.Partition, kerr.NotLeaderForPartition.Code
				answer.Partitions = append(answer.Partitions, refused)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	to := opened(t, kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}", Losses: "losses", Timeout: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the default is 30 s
	defer cancel()
	if err := sink.One(ctx, to, message("orders", 1, 1)); err == nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}
