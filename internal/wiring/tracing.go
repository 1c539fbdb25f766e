package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

const (
	tracesPath = "/v1/traces" // of OTLP over HTTP, unless the endpoint has another one
	// exportTimeout bounds a request to the receiver of traces.
	exportTimeout = 10 * time.Second
	// maxSpans bounds the spans that wait to be exported. More are dropped.
	maxSpans = 2048
)

// openTracing makes the tracer. Without an endpoint there is none, and packages trace nothing.
func (s *Service) openTracing(ctx context.Context) error {
	cfg := s.opts.Config.Tracing
	if cfg.Endpoint == "" {
		return nil
	}
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return fmt.Errorf("parse tracing.endpoint: %w", err)
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = tracesPath
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: exportTimeout}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithHeaders(cfg.Headers.Map()),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport: transport, Timeout: exportTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // headers are for the receiver
		}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), // spans are dropped rather than collected
	)
	if err != nil {
		return fmt.Errorf("make exporter of traces: %w", err)
	}
	c := s.opts.Config
	provider := trace.NewTracerProvider(
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(cfg.Ratio))),
		trace.WithBatcher(&exports{SpanExporter: exporter, logger: s.logger}, trace.WithMaxQueueSize(maxSpans)),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "streamer"), attribute.String("service.version", s.opts.Version),
			attribute.String("service.namespace", c.Cluster.ID), attribute.String("service.instance.id", c.Node.ID),
		)),
	)
	s.tracer = provider.Tracer("github.com/mongostream/streamer")
	s.closers = append(s.closers, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := provider.Shutdown(closing); err != nil {
			s.logger.Warn("exporting the last traces failed", "error", err)
			_ = exporter.Shutdown(closing) // which ends a request that is under way
		}
		transport.CloseIdleConnections()
	})
	return nil
}

// exports logs the first of the exports that fail in a row.
type exports struct {
	trace.SpanExporter

	logger *slog.Logger
	fails  atomic.Bool
}

// ExportSpans implements [trace.SpanExporter]. Its errors are logged here: the SDK would write each
// to standard error.
func (e *exports) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	switch err := e.SpanExporter.ExportSpans(ctx, spans); {
	case err == nil:
		if e.fails.Swap(false) {
			e.logger.Info("traces are exported again")
		}
	case !e.fails.Swap(true):
		e.logger.Warn("exporting traces failed, spans are dropped", "error", err)
	}
	return nil
}
