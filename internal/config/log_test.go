package config

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestDurationsAreReadableInEveryFormat(t *testing.T) {
	for format, want := range map[string]string{"text": " took=1.5s retry.after=250ms\n", "json": `"took":"1.5s","retry":{"after":"250ms"}}` + "\n"} {
		var text strings.Builder
		c, err := Load("", []string{"STREAMER_LOG_FORMAT=" + format, "STREAMER_LOG_LEVEL=info"})
		if err != nil {
			t.Fatal(err)
		}
		log := c.Log.Logger(&text, slog.LevelDebug)
		log.Debug("dropped")
		log.Info("event saved", "took", 1500*time.Millisecond, slog.Group("retry", "after", 250*time.Millisecond))
		if !strings.HasSuffix(text.String(), want) || strings.Contains(text.String(), "dropped") {
			t.Errorf("%s: %s", format, &text)
		}
	}
	var text strings.Builder
	log := Log{Level: slog.LevelDebug}.Logger(&text, slog.LevelWarn)
	if log.Info("dropped"); text.Len() > 0 {
		t.Errorf("below the least level: %s", &text)
	}
}
