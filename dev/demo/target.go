package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/change"
	devbroker "github.com/mongostream/streamer/dev/broker"
)

// sinkName is the name of the nodes' sink.
const sinkName = "demo"

// A target is the embedded system to which a sink of the nodes publishes, and from which the demo
// reads the messages.
type target struct {
	config string // path of the nodes' configuration
	kind   string
	stream jetstream.Stream
	conn   *nats.Conn
	nats   *devbroker.NATS
	kafka  *kfake.Cluster
}

// openTarget starts the target of a kind and writes the configuration of the sink below a folder.
func openTarget(ctx context.Context, kind, dir string) (*target, error) {
	t := &target{kind: kind, config: filepath.Join(dir, "sinks.yaml")}
	var settings string
	var err error
	switch kind {
	case "nats":
		if t.nats, err = devbroker.StartNATS(filepath.Join(dir, "nats"), 0); err == nil {
			settings = "type: nats\n    nats: {url: '" + t.nats.URL() + "', subject: 'streamer.{partition}.{db}.{coll}', fence: true}"
			t.stream, t.conn, err = t.nats.Stream(ctx, "streamer", "streamer.>")
		}
	case "kafka":
		if t.kafka, err = devbroker.StartKafka(4); err == nil {
			settings = "type: kafka\n    kafka: {brokers: ['" + t.kafka.ListenAddrs()[0] + "'], create_topics: true, transactional: true}"
		}
	}
	if err == nil {
		err = os.WriteFile(t.config, []byte("sinks:\n  - name: "+sinkName+"\n    start: earliest\n    "+settings+"\n"), 0o600)
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	return t, nil
}

// String says where the changes come by.
func (t *target) String() string {
	if t.nats != nil {
		return "via NATS JetStream, stream streamer"
	}
	return "via Kafka, topics " + strings.Join(topics(), ", ")
}

// topics are those to which a sink for Kafka publishes the shop's changes.
func topics() []string { return []string{"shop.orders", "shop.customers"} }

// file returns the path of the nodes' configuration, none without a target.
func (t *target) file() string {
	if t == nil {
		return ""
	}
	return t.config
}

// close ends the target.
func (t *target) close() {
	if t == nil {
		return
	}
	if t.conn != nil {
		t.conn.Close()
	}
	if t.nats != nil {
		t.nats.Stop()
	}
	if t.kafka != nil {
		t.kafka.Close()
	}
}

// An arrival is a message that has arrived.
type arrival struct {
	value     []byte
	partition change.Partition
}

// take calls f for everything that arrives until the context ends.
func (t *target) take(ctx context.Context, f func(arrival) error) error {
	if t.nats != nil {
		return t.takeNATS(ctx, f)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(t.kafka.ListenAddrs()...), kgo.ConsumeTopics(topics()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			a := arrival{value: r.Value}
			for _, h := range r.Headers {
				if h.Key == "streamer-partition" {
					a.partition = partitionOf(string(h.Value))
				}
			}
			if err := f(a); err != nil {
				return err
			}
		}
	}
}

func partitionOf(text string) change.Partition {
	n, _ := strconv.Atoi(text) // a sink wrote it
	return change.Partition(n)
}

func (t *target) takeNATS(ctx context.Context, f func(arrival) error) error {
	consumer, err := t.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		if err := f(arrival{m.Data(), partitionOf(m.Headers().Get("Streamer-Partition"))}); err != nil {
			return err
		}
	}
}

// takeFromTarget checks what arrives at the target.
func (d *demo) takeFromTarget(ctx context.Context) error {
	return d.target.take(ctx, func(a arrival) error {
		took, err := d.check.Timed(a.value, time.Now())
		d.gaps.took(a.partition, took)
		return err
	})
}
