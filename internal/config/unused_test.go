package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A key that differs from its default and belongs to a part that is off says what it needs; the key
// that turns the part on, and those of a part that is on, do not.
func TestKeysWithoutEffectSayWhatTheyNeed(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string // keys that say so
		need string
	}{
		{"cluster: {settle_time: 20s, resync: {rate_limit: 3}, assignment_circuit: {failure_threshold: 9}}\n", "cluster.settle_time cluster.resync.rate_limit cluster.assignment_circuit.failure_threshold", "cluster.expected_nodes"},
		{"cluster: {settle_time: 20s, expected_nodes: 2}\n", "", ""},
		{"cluster: {settle_time: 10s}\n", "", ""}, // its default
		{"retention: {max_age: 24h, interval: 1m}\n", "retention.interval retention.max_age", "retention.store"},
		{"retention: {max_age: 24h, store: file:///var/lib/x}\n", "", ""},
		{"notices: {webhook: {severity: critical}}\n", "notices.webhook.severity", "notices.webhook.url"},
		{"notices: {webhook: {severity: critical, url: https://example.com/x, secret: 0123456789abcdef}}\n", "", ""},
		{"debug: {dump_max: 3}\n", "debug.dump_max", "debug.dump_dir"},
		{"debug: {dump_max: 3, dump_dir: /tmp}\n", "", ""},
		{"tracing: {ratio: 0.5}\n", "tracing.ratio", "tracing.endpoint"},
		{"access: {leeway: 5s}\n", "access.leeway", "access.jwks_file"},
		{"reliability: {dedup: {enabled: false}}\n", "", ""},
		{"reliability: {dedup: {enabled: false, ttl: 1m}, gap_detection: {enabled: false, max_gap: 1m}}\n", "reliability.dedup.ttl reliability.gap_detection.max_gap", "enabled"},
		{"reliability: {dedup: {ttl: 1m}}\n", "", ""},
	} {
		path := filepath.Join(t.TempDir(), "t.yaml")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Settings(path, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		var got []string
		for _, s := range all {
			if s.Lacks != "" {
				got = append(got, s.Key)
			}
			if s.Lacks != "" && (!strings.Contains(s.Lacks, tt.need) || !strings.HasPrefix(s.From, path)) {
				t.Errorf("%s: %+v, want it to need %s", tt.text, s, tt.need)
			}
		}
		want := strings.Fields(tt.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v have no effect, want %v", tt.text, got, want)
		}
	}
}

// Each dependence names keys that exist, and needs one that exists.
func TestDependencesNameKeys(t *testing.T) {
	all := newTable(new(Config))
	for _, d := range dependences() {
		for _, name := range d.keys {
			one := dependence{keys: []string{name}}
			if !slices.ContainsFunc(all.keys, func(k key) bool { return one.names(k.path) }) {
				t.Errorf("there is no key %s", name)
			}
		}
		if !slices.ContainsFunc(all.keys, func(k key) bool { return strings.HasPrefix(d.need, k.path) }) {
			t.Errorf("%q names no key", d.need)
		}
	}
}
