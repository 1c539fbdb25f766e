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

// traceHandoffs adds to the traces of handoffs that this node has claimed their partitions, which
// it asked for at a time, and begins the spans in which it begins to serve them. The function that
// it returns ends those. Partitions whose last term was of the same epoch are left out: they were
// claimed after the handoff before, and are claimed again.
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
