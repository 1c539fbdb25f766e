package member

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// traceHandoffs adds this node's claim to the traces of handoffs, and starts the spans in which it
// starts to serve their partitions. The returned function ends these spans. It leaves out
// partitions whose last term had the same epoch, because their handoff is in the trace already.
func (a *attachment) traceHandoffs(ctx context.Context, partitions []change.Partition, owners []cluster.Owner, asked time.Time) (served func(error)) {
	counts := make(map[string]int)
	for i, owner := range owners {
		if owner.Trace != "" && owner.Process == a.cfg.Member.Process && !a.terms.Had(partitions[i], owner.Epoch) {
			counts[owner.Trace]++
		}
	}
	var spans []trace.Span
	for text, n := range counts {
		handoff := cluster.WithTrace(ctx, text)
		attributes := trace.WithAttributes(attribute.String("node", a.cfg.Member.Node), attribute.Int("partitions", n))
		_, claimed := a.cfg.Tracer.Start(handoff, "handoff.claim", trace.WithTimestamp(asked), attributes)
		claimed.End()
		_, serving := a.cfg.Tracer.Start(handoff, "handoff.serve", attributes)
		spans = append(spans, serving)
	}
	return func(err error) {
		for _, span := range spans {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	}
}
