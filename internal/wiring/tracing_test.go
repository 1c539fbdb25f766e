package wiring

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
)

func TestExportsThatFailAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	inner := &exporter{err: errors.New("away")}
	x := &exports{SpanExporter: inner, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		if err := x.ExportSpans(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(log.String(), "exporting traces failed"); got != 1 {
		t.Errorf("said %d times: %s", got, &log)
	}
	for _, err := range []error{nil, nil, inner.err} {
		inner.err = err
		_ = x.ExportSpans(t.Context(), nil)
	}
	if again, failed := strings.Count(log.String(), "again"), strings.Count(log.String(), "exporting traces failed"); again != 1 || failed != 2 {
		t.Errorf("back again %d times, failed %d times: %s", again, failed, &log)
	}
}

// An exporter returns its error.
type exporter struct {
	trace.SpanExporter

	err error
}

func (f *exporter) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return f.err }
