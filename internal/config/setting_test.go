package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each value that is shown names its source, those of sinks too, and no secret is shown.
func TestSettingsSayWhereTheyAreFrom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "cluster:\n  id: a\nsinks:\n  - name: out\n    type: http\n    http:\n      url: https://example.com/secret-path\n      secret: 0123456789abcdef\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Settings(path, []string{"STREAMER_CLUSTER_PARTITIONS=8", "STREAMER_MONGODB_URI=mongodb://ann:secret-word@h/?replicaSet=rs0", "STREAMER_ADDRESS=x"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]Setting{
		"cluster.id":           {Value: "a", From: path + ":2"},
		"cluster.partitions":   {Value: "8", From: "STREAMER_CLUSTER_PARTITIONS"},
		"cluster.lease_ttl":    {Value: "10s", From: "default"},
		"sinks[0].name":        {Value: "out", From: path + ":4"},
		"sinks[0].http.batch":  {Value: "100", From: "default"},
		"sinks[0].http.secret": {Value: "***", From: path + ":8"},
	} {
		i := slices.IndexFunc(all, func(s Setting) bool { return s.Key == key })
		if i < 0 || all[i].Value != want.Value || all[i].From != want.From || all[i].Default() != (want.From == "default") {
			t.Errorf("%s: %d of %+v; want %+v", key, i, all, want)
		}
	}
	for _, s := range all {
		if strings.Contains(s.Value, "secret-") || strings.Contains(s.Value, "0123456789") {
			t.Errorf("a secret is shown: %+v", s)
		}
	}
}

// What config init writes is a configuration, with the keys that people set first at their
// defaults.
func TestInitialConfigurationIsTheDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(Initial), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Settings(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := Settings("", nil)
	if err != nil {
		t.Fatal(err)
	}
	var set []string
	for i, s := range all {
		if s.Value != defaults[i].Value {
			t.Errorf("%+v is not the default %s", s, defaults[i].Value)
		}
		if !s.Default() {
			set = append(set, s.Key)
		}
	}
	want := essentials()
	slices.Sort(want)
	slices.Sort(set)
	if !slices.Equal(set, want) {
		t.Errorf("%v are set, want %v", set, want)
	}
}
