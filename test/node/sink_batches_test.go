package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/sink"
)

// Kafka refuses records that arrive together as a whole: because one of them is bad, or because the
// topic takes less at once than it did. A change is a dead letter only if it is refused alone, and
// others arrive.
func TestOnlyWhatIsRefusedAloneIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]struct {
		refuse  func(*testing.T, *kfake.Cluster, *kgo.Client)
		letters []string
	}{
		"one is bad": {refusePoison, []string{"25"}}, "the topic takes less": {takeLess, nil},
	} {
		for _, transactional := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, transactional %t", name, transactional), func(t *testing.T) {
				t.Parallel()
				k, client := kafkaWithLetters(t)
				r := sinkRig(t, fmt.Sprintf("    type: kafka\n    dead_letter: letters\n    losses: losses\n    kafka: {brokers: ['%s'], compression: none, transactional: %t}\n",
					k.ListenAddrs()[0], transactional))
				n := r.beginWith(nil, "STREAMER_CLUSTER_PARTITIONS=1")
				retried := func() uint64 { return n.service.Sinks()[0].Status().Retried }
				got := map[string]*landing{"shop.orders": {}, "letters": {}}
				arrive := func(documents int) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					for len(got["shop.orders"].seqs(t))+len(got["letters"].seqs(t)) < documents {
						fetches := client.PollFetches(ctx)
						if ctx.Err() != nil {
							t.Fatalf("not all of %d changes arrive: %+v", documents, n.service.Sinks()[0].Status())
						}
						fetches.EachRecord(func(r *kgo.Record) { got[r.Topic].add(string(r.Value)) })
					}
				}
				r.padded(0, 10)
				arrive(10)
				begins.refuse(t, k, client)
				r.padded(10, 40)
				arrive(40)
				before := retried()
				if before > 120 { // each a few times, not with each attempt of another
					t.Errorf("%d attempts were repeated for 30 changes", before)
				}
				r.padded(40, 70)
				arrive(70)
				if now := retried(); now != before {
					t.Errorf("%d attempts are repeated afterwards", now-before)
				}
				if letters := slices.Sorted(maps.Keys(got["letters"].seqs(t))); !slices.Equal(letters, begins.letters) {
					t.Errorf("dead letters: %v, want %v", letters, begins.letters)
				}
				if orders := got["shop.orders"].seqs(t); len(orders) != 70-len(begins.letters) {
					t.Errorf("%d documents have arrived", len(orders))
				}
			})
		}
	}
}

// A right that is revoked judges no change: none is a dead letter, however often Kafka refuses it,
// and all arrive, in order, when the right is back, without an operator.
func TestRevokedRightMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %t", transactional), func(t *testing.T) {
			t.Parallel()
			k, client := kafkaWithLetters(t)
			r := sinkRig(t, fmt.Sprintf("    type: kafka\n    dead_letter: letters\n    losses: losses\n    attempts: 2\n    kafka: {brokers: ['%s'], transactional: %t}\n",
				k.ListenAddrs()[0], transactional))
			n := r.beginWith(nil, "STREAMER_CLUSTER_PARTITIONS=1")
			got := map[string]*landing{"shop.orders": {}, "letters": {}}
			arrive := func(documents int) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for len(got["shop.orders"].seqs(t)) < documents {
					fetches := client.PollFetches(ctx)
					if ctx.Err() != nil {
						t.Fatalf("not all of %d changes arrive: %+v", documents, n.service.Sinks()[0].Status())
					}
					fetches.EachRecord(func(r *kgo.Record) { got[r.Topic].add(string(r.Value)) })
				}
			}
			r.writes(0, 10)
			arrive(10)
			var revoked atomic.Bool
			var refusals atomic.Int64
			revoked.Store(true)
			refuse(k, kerr.TopicAuthorizationFailed, func([]byte) bool {
				if revoked.Load() {
					refusals.Add(1)
				}
				return revoked.Load()
			})
			r.writes(10, 20)
			n.until("it is refused more often than a change may be, and operators are told", func() bool {
				return refusals.Load() > 3 && strings.Contains(n.service.Sinks()[0].Status().Error, "allow the user the operations Describe and Write")
			})
			revoked.Store(false)
			arrive(20)
			n.until("the sink publishes", func() bool { return n.service.Sinks()[0].Status().State == sink.Publishing })
			if dead := n.service.Sinks()[0].Status().DeadLetters; dead != 0 {
				t.Errorf("%d dead letters", dead)
			}
		})
	}
}

// kafkaWithLetters begins Kafka, and a consumer of what a sink and its dead letters bring.
func kafkaWithLetters(t *testing.T) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	for _, topic := range []string{"shop.orders", "letters", "losses"} {
		if err := k.CreateTopic(topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics("shop.orders", "letters"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return k, client
}

// padded inserts documents of half a kilobyte at once, of which one is poison.
func (r *rig) padded(from, to int) {
	r.Helper()
	var docs []any
	for id := from; id < to; id++ {
		pad := strings.Repeat("x", 500)
		if id == 25 {
			pad = "poison"
		}
		docs = append(docs, bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 1}, {Key: "pad", Value: pad}})
	}
	if _, err := r.coll("orders").InsertMany(r.Context(), docs); err != nil {
		r.Fatal(err)
	}
}

// refusePoison makes Kafka refuse batches with a poisonous record, as one does that checks schemas.
func refusePoison(_ *testing.T, k *kfake.Cluster, _ *kgo.Client) {
	refuse(k, kerr.InvalidRecord, func(records []byte) bool { return bytes.Contains(records, []byte("poison")) })
}

// refuse makes Kafka refuse batches of the sink's topic with an error.
func refuse(k *kfake.Cluster, why *kerr.Error, is func(records []byte) bool) {
	of := k.TopicInfo("shop.orders").TopicID
	k.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		req := request.(*kmsg.ProduceRequest) //nolint:forcetypeassert // by its key
		resp, refuses := kmsg.NewPtrProduceResponse(), false
		resp.Version = req.Version
		for _, topic := range req.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				refuses = refuses || (topic.Topic == "shop.orders" || topic.TopicID == of) && is(p.Records)
				refused := kmsg.NewProduceResponseTopicPartition()
				refused.Partition, refused.ErrorCode = p.Partition, why.Code
				answer.Partitions = append(answer.Partitions, refused)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, refuses
	})
}

// takeLess lowers the limit of the topic to a few documents.
func takeLess(t *testing.T, _ *kfake.Cluster, client *kgo.Client) {
	t.Helper()
	set := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource, value := kmsg.NewIncrementalAlterConfigsRequestResource(), "3000"
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, "shop.orders"
	resource.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: &value}}
	set.Resources = append(set.Resources, resource)
	if _, err := set.RequestWith(t.Context(), client); err != nil {
		t.Fatal(err)
	}
}
