package delivery

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/snapshot"
)

// errUnfinished reports an unfinished snapshot.
var errUnfinished = errors.New("the snapshot began anew, or its session or subscription ended before it was done")

// newTrail begins the trace of a snapshot. It returns nil unless that is recorded.
func newTrail(tracer trace.Tracer, sub *Subscription, p snapshot.Progress) *trail {
	_, span := tracer.Start(context.Background(), "snapshot", trace.WithAttributes(
		attribute.String("subscriber", sub.session.cfg.Subscriber), attribute.String("subscription", sub.ID), attribute.String("reason", string(p.Reason)),
		attribute.Int64("read", int64(p.Read)),
	))
	if !span.IsRecording() {
		return nil
	}
	return &trail{span: span}
}

// traceSnapshot begins the span of a snapshot, or of its rest. Called by the owner.
func (h *Hub) traceSnapshot(sub *Subscription, p snapshot.Progress) {
	if h.cfg.Tracer == nil {
		return
	}
	sub.endTrail()
	sub.traced = newTrail(h.cfg.Tracer, sub, p)
}

// endTrail ends the span of a snapshot that is not done, if there is one.
func (sub *Subscription) endTrail() {
	if sub.traced != nil {
		sub.traced.span.SetStatus(codes.Error, errUnfinished.Error())
		sub.traced.span.End()
		sub.traced = nil
	}
}

// marked adds a mark to the span of a snapshot, and ends it with the last one.
func (sub *Subscription) marked(state SnapshotState, p snapshot.Progress) {
	if sub.traced == nil {
		return
	}
	sub.traced.span.AddEvent(string(state), trace.WithAttributes(attribute.Int64("read", int64(p.Read)), attribute.Int64("estimated", int64(p.Estimated))))
	if state != SnapshotBegun {
		sub.traced.span.End()
		sub.traced = nil
	}
}

// tracePage records a page below the snapshot that takes it, if that is recorded: its 1st page, the
// 2nd, the 4th, the 8th, and so on, so that the trace of a large collection stays small. Called by
// the owner.
func (h *Hub) tracePage(sub *Subscription, p *page) {
	t := sub.traced
	if t == nil {
		return
	}
	if t.pages++; t.pages&(t.pages-1) != 0 {
		return
	}
	_, span := h.cfg.Tracer.Start(trace.ContextWithSpan(context.Background(), t.span), "snapshot.page", trace.WithTimestamp(p.begun), trace.WithAttributes(
		attribute.String("namespace", p.namespace.String()), attribute.Int("page", t.pages), attribute.Int("documents", len(p.documents)),
	))
	span.End(trace.WithTimestamp(p.over))
}
