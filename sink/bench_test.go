package sink

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
)

// BenchmarkEncode makes the messages of a batch.
func BenchmarkEncode(b *testing.B) {
	const batch = 1024
	e := changetest.Event{ID: 7919, Time: change.Timestamp{T: 1000, I: 2}, Pad: 150}
	doc := e.Bytes()
	for _, format := range Formats() {
		b.Run(string(format), func(b *testing.B) {
			encode := newEncoder(Config{Cluster: "c", Name: "out", Format: format})
			event := &delivery.Event{Ref: e.Position().Ref(), Partition: 3}
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				encode.recycle(encode.full)
				encode.full = encode.full[:0]
				encode.ids = strings.Builder{}
				encode.ids.Grow(batch * idSize)
				for range batch {
					if _, err := encode.message(event, "1-A-0", doc); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// idle is a target that acknowledges everything at once.
type idle struct{ Target }

func (idle) Publish(_ context.Context, m *Message) { m.Done(nil) }
func (idle) Flush()                                {}

// BenchmarkPublish passes encoded messages to a target, and acknowledges them.
func BenchmarkPublish(b *testing.B) {
	for _, batch := range []int{1, 1024} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			s := publishing(idle{}, Config{}, batch)
			f := s.mu.flights[0]
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				s.mu.flights, f.left = append(s.mu.flights[:0], f), batch
				s.publish(b.Context(), f.messages)
			}
		})
	}
}
