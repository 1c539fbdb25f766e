package sink

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/delivery"
)

// errOpen reports that the sink has ended before a batch was acknowledged.
var errOpen = errors.New("the sink ended before the batch was acknowledged")

// A span traces a batch or an attempt, from its receipt to the target's acknowledgement. The zero
// value records nothing and costs nothing. Any goroutine may call its methods.
type span struct{ of trace.Span }

// now returns the time for spans, zero without a tracer.
func (s *Sink) now() time.Time {
	if s.cfg.Tracer == nil {
		return time.Time{}
	}
	return time.Now()
}

// beginSpan begins the span of a batch.
func (s *Sink) beginSpan(ctx context.Context, b *delivery.Batch) span {
	if s.cfg.Tracer == nil {
		return span{}
	}
	_, of := s.cfg.Tracer.Start(ctx, "sink.batch", trace.WithTimestamp(s.loop.took))
	if !of.IsRecording() {
		return span{}
	}
	of.SetAttributes(attribute.String("sink", s.cfg.Name), attribute.Int64("batch", int64(b.Seq)), attribute.Int("events", len(b.Events)))
	of.AddEvent("received", trace.WithTimestamp(s.loop.took))
	return span{of}
}

// beginRetry begins the span of another attempt to publish a message, below that of its batch.
func (s *Sink) beginRetry(ctx context.Context, m *Message) span {
	if m.flight.span.of == nil {
		return span{}
	}
	_, of := s.cfg.Tracer.Start(trace.ContextWithSpan(ctx, m.flight.span.of), "sink.retry")
	of.SetAttributes(attribute.String("id", m.ID), attribute.Int("attempts", m.attempts))
	return span{of}
}

// published notes that the messages of the batch go to the target from now on.
func (s span) published(messages int) {
	if s.of != nil {
		s.of.AddEvent("published", trace.WithAttributes(attribute.Int("messages", messages)))
	}
}

// acknowledged ends the span of a batch whose messages are all over.
func (s span) acknowledged() {
	if s.of != nil {
		s.of.AddEvent("acknowledged")
		s.of.End()
	}
}

// fail ends the span with an error.
func (s span) fail(err error) {
	if s.of != nil {
		s.of.SetStatus(codes.Error, err.Error())
		s.of.End()
	}
}

// end ends the span with the outcome of an attempt.
func (s span) end(err error) {
	switch {
	case err != nil:
		s.fail(err)
	case s.of != nil:
		s.of.End()
	}
}

// endSpans ends the spans of batches that are not acknowledged.
func (s *Sink) endSpans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.mu.flights {
		f.span.fail(errOpen)
	}
}
