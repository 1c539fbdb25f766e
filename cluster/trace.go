package cluster

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceparent is the field of W3C Trace Context that names a span.
const traceparent = "traceparent"

// TraceOf returns the span of a context as text for another node: a traceparent of W3C Trace
// Context. It is empty if the span is not recorded.
func TraceOf(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// WithTrace returns a context with the span of another node. A text without a valid span changes
// nothing.
func WithTrace(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
