package fanout_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/match"
)

// BenchmarkOneEventToManySessions hands one event of a kilobyte to a thousand sessions that want it as JSON: all in the same form, which
// is written once, or each in a form of its own.
func BenchmarkOneEventToManySessions(b *testing.B) {
	for name, shape := range map[string]func(int) wire.Shape{
		"written=once": func(int) wire.Shape { return wire.Shape{Format: wire.JSON} },
		"written=each": func(i int) wire.Shape {
			return wire.Shape{Format: wire.JSON, Fields: []string{"pad", fmt.Sprint("none", i)}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			const sessions = 1000
			var source lanetest.Log
			source.Append(changetest.Event{ID: 0})
			log := lane.NewLog(lane.Config{Partitions: partitions}, &source)
			hub := fanout.New(fanout.Config{Partitions: partitions, JSON: func(b, doc []byte) ([]byte, error) {
				text, err := bson.MarshalExtJSON(bson.Raw(doc), false, false)
				return append(b, text...), err
			}}, log)
			ctx, cancel := context.WithCancel(b.Context())
			var running, receiving, arrived sync.WaitGroup
			running.Go(func() { _ = log.Run(ctx, change.Position{}) })
			running.Go(func() { _ = hub.Run(ctx) })
			first, _ := source.Reach()
			program, err := match.Compile(match.Filter{})
			if err != nil {
				b.Fatal(err)
			}
			for i := range sessions {
				s, err := hub.Open(ctx, fanout.SessionConfig{Start: change.At(first.Next())}, []fanout.Subscription{{ID: "all", Program: program, Shape: shape(i)}})
				if err != nil {
					b.Fatal(err)
				}
				receiving.Go(func() { receive(ctx, s, &arrived) })
			}
			send := func() {
				arrived.Add(sessions)
				source.Append(changetest.Event{ID: 1, Pad: 1000})
				arrived.Wait()
			}
			send() // all are on the live path then
			b.ReportAllocs()
			for b.Loop() {
				send()
			}
			b.StopTimer()
			cancel()
			receiving.Wait()
			running.Wait()
		})
	}
}

// receive takes and acknowledges what comes, and counts the events.
func receive(ctx context.Context, s *fanout.Session, arrived *sync.WaitGroup) {
	for {
		batches, _, err := s.Receive(ctx)
		if err != nil {
			return
		}
		for _, batch := range batches {
			if err := s.Ack(batch.Partition, batch.To); err != nil {
				panic(err)
			}
			for range batch.Events {
				arrived.Done()
			}
		}
	}
}
