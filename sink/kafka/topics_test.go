package kafka_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

// topics starts a fake cluster with topics, each with the value of its max.message.bytes.
func topics(t *testing.T, limits map[string]string) *kfake.Cluster {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	for name, limit := range limits {
		if err := k.CreateTopic(name, 1, map[string]string{"max.message.bytes": limit}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// both runs a test with a target of each kind, which publishes without compression.
func both(t *testing.T, test func(t *testing.T, with func(kafka.Config) kafka.Config)) {
	t.Helper()
	for name, transactional := range map[string]bool{"plain": false, "transactions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(cfg kafka.Config) kafka.Config {
				cfg.Losses, cfg.ID, cfg.Transactional, cfg.Compression = "losses", "id", transactional, "none"
				return cfg
			})
		})
	}
}

// A topic is asked how large a message may be; what it says counts, also when it says another thing
// later. A refusal names topic, limit and remedy.
func TestTopicSaysHowLargeAMessageMayBe(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, with func(kafka.Config) kafka.Config) {
		k := topics(t, map[string]string{"shop.large": "4194304", "shop.small": "1048588"})
		to := opened(t, with(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}"}))
		publish := func(topic string, n, size int) error {
			m := message(topic, n, 1)
			m.Value = make([]byte, size)
			return sink.One(t.Context(), to, m)
		}
		if err := publish("large", 1, 3<<20); err != nil {
			t.Errorf("3 MB to a topic of 4 MiB: %v", err)
		}
		err := publish("small", 2, 3<<20)
		refused, is := errors.AsType[*sink.RefusedError](err)
		if !is || !refused.Final {
			t.Fatalf("3 MB to a topic of 1 MiB: %v", err)
		}
		for _, want := range []string{"topic shop.small", "max.message.bytes is 1048588", "raise it"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, without %q", err, want)
			}
		}
		if err := publish("small", 3, 1000); err != nil {
			t.Errorf("a small message after it: %v", err)
		}
		set := kmsg.NewPtrIncrementalAlterConfigsRequest()
		resource, value := kmsg.NewIncrementalAlterConfigsRequestResource(), "8388608"
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, "shop.small"
		resource.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: &value}}
		set.Resources = append(set.Resources, resource)
		client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := set.RequestWith(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		for n := 4; ; n++ { // Kafka is asked again a second after a refusal
			if err = publish("small", n, 3<<20); err == nil || t.Context().Err() != nil {
				break
			}
		}
	})
}

// The setting bounds messages where the topic would take more.
func TestSettingBoundsMessages(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, with func(kafka.Config) kafka.Config) {
		k := topics(t, map[string]string{"shop.large": "4194304"})
		to := opened(t, with(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}", MaxMessageBytes: 100_000}))
		m := message("large", 1, 1)
		m.Value = make([]byte, 200_000)
		if err := sink.One(t.Context(), to, m); err == nil || !strings.Contains(err.Error(), "kafka.max_message_bytes is 100000") {
			t.Error(err)
		}
	})
}

// A topic that is missing is named within seconds, with the remedy, and others are published to
// meanwhile. Once it is there it gets its messages.
func TestMissingTopicIsNamed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, with func(kafka.Config) kafka.Config) {
		k := topics(t, map[string]string{"shop.orders": "1000000"})
		to := opened(t, with(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}"}))
		begun := time.Now()
		err := sink.One(t.Context(), to, message("missing", 1, 1))
		if refused, is := errors.AsType[*sink.RefusedError](err); !is || !refused.Destination || !strings.Contains(err.Error(), "topic shop.missing does not exist: create it, or set kafka.create_topics") {
			t.Error(err)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
		other := message("orders", 2, 1)
		other.Partition = 3
		if err := sink.One(t.Context(), to, other); err != nil {
			t.Error(err)
		}
		if err := k.CreateTopic("shop.missing", 1, nil); err != nil {
			t.Fatal(err)
		}
		for n := 3; ; n++ {
			if err = sink.One(t.Context(), to, message("missing", n, 1)); err == nil || t.Context().Err() != nil {
				break
			}
		}
	})
}

// Every record has a key, and no two documents of a topic share one: compacted topics take them all
// and keep them apart.
func TestRecordsHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  kafka.Config
		want []string
	}{
		"a topic for each collection": {kafka.Config{Topic: "{db}.{coll}"}, []string{`1`, `1`, `["shop.a"]`, `["shop"]`}},
		"one topic":                   {kafka.Config{Topic: "all"}, []string{`["shop.a",1]`, `["shop.b",1]`, `["shop.a"]`, `["shop"]`}},
		"one collection in one topic": {kafka.Config{Topic: "all", OneDatabase: true, OneCollection: true}, []string{`1`, `1`, `["shop.a"]`, `["shop"]`}},
		"Debezium": {
			kafka.Config{Topic: "{db}.{coll}", Format: sink.Debezium}, []string{`{"id":"1"}`, `{"id":"1"}`, `["shop.a"]`, `["shop"]`},
		},
		"Debezium, one topic": {kafka.Config{Topic: "all", Format: sink.Debezium}, []string{
			`{"id":"1","__dbz__physicalTableIdentifier":"shop.a"}`, `{"id":"1","__dbz__physicalTableIdentifier":"shop.b"}`, `["shop.a"]`, `["shop"]`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Brokers, c.cfg.Losses, c.cfg.Create, c.cfg.Tombstones = brokers(t), "all", true, true
			if c.cfg.Topic != "all" {
				c.cfg.Topic, c.cfg.Losses = "all", "losses" // which the test reads; the key goes by the template
				c.cfg.OneDatabase, c.cfg.OneCollection = true, true
			}
			to := opened(t, c.cfg)
			drop, whole, loss := message("a", 3, 1), message("", 4, 1), &sink.Message{ID: "loss.1", Op: sink.OpLoss, Value: []byte("{}")}
			drop.Op, drop.Key, whole.Op, whole.Key = "drop", nil, "dropDatabase", nil
			messages := []*sink.Message{message("a", 1, 1), message("b", 2, 1), drop, whole}
			want := slices.Clone(c.want)
			if c.cfg.Losses == "all" {
				messages, want = append(messages, loss), append(want, `["loss.1"]`)
			}
			for _, m := range messages {
				if err := sink.One(t.Context(), to, m); err != nil {
					t.Fatal(err)
				}
			}
			if got := keysOf(t, c.cfg.Brokers, "all", len(want)); !slices.Equal(got, want) {
				t.Errorf("keys %q, want %q", got, want)
			}
		})
	}
}

// keysOf returns the keys of the first records of a topic, in order.
func keysOf(t *testing.T, brokers []string, topic string, want int) (keys []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for len(records) < want && t.Context().Err() == nil {
		client.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	slices.SortStableFunc(records, func(a, b *kgo.Record) int { return a.Timestamp.Compare(b.Timestamp) })
	for _, r := range records {
		keys = append(keys, string(r.Key))
	}
	return keys
}
