package preflight

import (
	"path/filepath"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// A sink whose filter can never be true has a warning in config check.
func TestDoubtfulFilterOfASinkIsAWarning(t *testing.T) {
	sink := config.Sink{Name: "out", Type: config.SinkFile, Format: "relaxed", File: config.SinkFileTarget{Path: filepath.Join(t.TempDir(), "out.jsonl")}}
	for filter, want := range map[string]fault.Code{`op == "updated"`: fault.FilterDoubtful, `op == "update"`: ""} {
		sink.Subscriptions = []config.SinkSubscription{{Filter: filter}}
		f, err := closure{cfg: config.Config{Sinks: []config.Sink{sink}}}.sinkSettings(0)
		if err != nil || f.Code != want {
			t.Errorf("%s: %+v, %v", filter, f, err)
		}
	}
}
