package sink

import (
	"testing"

	"github.com/mongostream/streamer/delivery"
)

// What is traced of a batch and of its repetition costs no allocation while nothing is traced.
func TestBatchesAllocateNothingForTracesThatAreOff(t *testing.T) {
	s := New(Config{Metrics: NewMetrics(nil)}, nil, &mute{})
	b, m := &delivery.Batch{Seq: 1}, &Message{flight: &flight{}}
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		s.loop.took = s.now()
		m.flight.span = s.beginSpan(ctx, b)
		m.flight.span.published(1)
		s.beginRetry(ctx, m).end(errOpen)
		m.flight.span.acknowledged()
	})
	if got != 0 || !s.loop.took.IsZero() {
		t.Errorf("%v allocations, batches taken at %v", got, s.loop.took)
	}
}
