package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/internal/retry"
)

// arrived is a message of a sink.
type arrived struct {
	value  []byte
	record *kgo.Record // of Kafka
	header nats.Header // of JetStream
}

// consume calls take for each message of a sink until take returns false.
func consume(ctx context.Context, j scenario, take func(arrived) bool) error {
	switch j.Broker.Kind {
	case toJetStream:
		return consumeJetStream(ctx, j, take)
	case toHTTP, toFile:
		return consumeLines(j.Broker.File, take)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(j.Broker.URL), kgo.ConsumeTopics(sinkTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			if r := iter.Next(); !take(arrived{value: r.Value, record: r}) {
				return nil
			}
		}
	}
}

func consumeJetStream(ctx context.Context, j scenario, take func(arrived) bool) error {
	conn, err := nats.Connect(j.Broker.URL)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, sinkStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next()
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		if !take(arrived{value: m.Data(), header: m.Headers()}) {
			return nil
		}
	}
}

// inFlightKafka and inFlightJetStream bound the unacknowledged messages of a producer, as in the
// sinks.
const inFlightKafka, inFlightJetStream = 64 << 10, 16 << 10

// publishToKafka publishes messages in a loop that does nothing else, without transactions: at a
// rate, or as fast as possible if it is 0.
func publishToKafka(ctx context.Context, round *round, messages []arrived, rate int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(round.Broker.URL), kgo.AllowAutoTopicCreation(), kgo.MaxBufferedRecords(inFlightKafka),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		return fmt.Errorf("make producer: %w", err)
	}
	defer client.Close()
	var acknowledged sync.WaitGroup
	var failed error // of the last failure; acknowledgements arrive one after the other
	round.begin()
	pace := pacer{begun: time.Now(), rate: rate}
	acknowledged.Add(len(messages))
	for i := range messages {
		if err := pace.wait(ctx); err != nil {
			return fmt.Errorf("keep the pace: %w", err)
		}
		r := messages[i].record
		client.Produce(ctx, &kgo.Record{Topic: bareTopic, Key: r.Key, Value: r.Value, Headers: r.Headers}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
			acknowledged.Done()
		})
	}
	acknowledged.Wait()
	if failed != nil {
		return fmt.Errorf("produce: %w", failed)
	}
	return nil
}

// publishToJetStream publishes messages in the same way.
func publishToJetStream(ctx context.Context, round *round, messages []arrived, rate int) error {
	conn, err := nats.Connect(round.Broker.URL)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(inFlightJetStream))
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	last := make([]jetstream.PubAckFuture, 0, len(messages))
	round.begin()
	pace := pacer{begun: time.Now(), rate: rate}
	for i := range messages {
		if err := pace.wait(ctx); err != nil {
			return fmt.Errorf("keep the pace: %w", err)
		}
		m := &nats.Msg{Subject: bareTopic, Data: messages[i].value, Header: messages[i].header}
		future, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		last = append(last, future)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, future := range last {
		select {
		case err := <-future.Err():
			return fmt.Errorf("publish: %w", err)
		default:
		}
	}
	return nil
}

// A pacer keeps a loop at a number of turns a second, 0 for no bound. It catches up late turns.
type pacer struct {
	begun       time.Time
	rate, turns int
}

// wait waits until the next turn is due, to the precision of the look interval.
func (p *pacer) wait(ctx context.Context) error {
	p.turns++
	if p.rate == 0 || p.turns%max(1, p.rate/int(time.Second/look)) != 0 {
		return nil
	}
	due := p.begun.Add(time.Duration(float64(p.turns) / float64(p.rate) * float64(time.Second)))
	return retry.Sleep(ctx, time.Until(due))
}
