package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// referringTexts returns the texts for readers, by path: documents and runbooks, and the
// alerts and dashboards.
func referringTexts(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(path, root+"/")] = string(text)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "config.yaml"} {
		add(filepath.Join(root, name))
	}
	for _, folder := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			switch filepath.Ext(path) {
			case ".md", ".yaml", ".json":
				if err == nil && !entry.IsDir() {
					add(path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// names returns the matches of a pattern's first group in a generated reference.
func names(t *testing.T, reference, pattern string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", reference))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	if len(found) < 20 {
		t.Fatalf("docs/%s: only %d names were found", reference, len(found))
	}
	return found
}

// Metrics, configuration keys and codes that a document, an alert or a dashboard names are in the
// references that the code generates.
func TestNamesInDocumentsExist(t *testing.T) {
	metrics := names(t, "reference/metrics.md", "(?m)^\\| `(streamer_\\w+)`")
	codes := names(t, "codes.md", `(?m)^## (STRM-[A-Z0-9-]+)`)
	keys := names(t, "reference/configuration.md", "(?m)^\\| `([a-z_.]+)`")
	groups, blocks := make(map[string]bool), make(map[string]bool)
	for key := range keys {
		parts := strings.Split(key, ".")
		groups[parts[0]] = true
		for i := range parts {
			blocks[strings.Join(parts[:i+1], ".")] = true
		}
	}
	metric := regexp.MustCompile(`\bstreamer_[a-z0-9_]+[a-z0-9]\b`)
	code := regexp.MustCompile(`\bSTRM-[A-Z0-9]+(?:-[A-Z0-9]+)*\b(-?)`)
	key := regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)+)(?:[:=][^`]*)?`")
	for path, text := range referringTexts(t) {
		for _, name := range metric.FindAllString(text, -1) {
			series := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			field := name == "streamer_id" || name == "streamer_key" // of Debezium's envelope
			if !metrics[name] && !metrics[series] && !field {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			if m[1] == "" && !codes[m[0]] { // one that ends in a hyphen names a family
				t.Errorf("%s: there is no code %s", path, m[0])
			}
		}
		for _, m := range key.FindAllStringSubmatch(text, -1) {
			name := m[1]
			group, _, _ := strings.Cut(name, ".")
			if groups[group] && !blocks[name] && !blocks[strings.TrimSuffix(name, "_file")] && !blocks[name+"_file"] && !otherNames(name) {
				t.Errorf("%s: there is no key %s", path, name)
			}
		}
	}
}

// otherNames are names that look like keys of the configuration: spans of traces, keys of a sink within its own entry,
// and files.
func otherNames(name string) bool {
	switch name {
	case "handoff.serve", "handoff.release", "handoff.claim", "handoff.drain", "handoff.pml":
		return true
	}
	return strings.HasPrefix(name, "http.")
}
