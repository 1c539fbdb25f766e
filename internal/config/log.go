package config

import (
	"io"
	"log/slog"
)

// Logger makes a logger that writes to w in the configured format. It drops lines below the
// configured level, and below least.
func (l Log) Logger(w io.Writer, least slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: max(l.Level, least), ReplaceAttr: readableDuration}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readableDuration writes durations as 1.5s in JSON, too, where they would be numbers of
// nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
