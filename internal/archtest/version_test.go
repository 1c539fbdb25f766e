package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The version is in the file VERSION; its copies for tools are equal (make set-version).
func TestVersionIsTheSameEverywhere(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	version := strings.TrimSuffix(read("VERSION"), "\n")
	if !strings.Contains(read("CHANGELOG.md"), "\n## ["+version+"]") {
		t.Errorf("CHANGELOG.md has no section %s", version)
	}
	for path, patterns := range map[string][]string{
		"deploy/chart/Chart.yaml":             {`(?m)^version: (\S+)$`, `(?m)^appVersion: v(\S+)$`},
		"deploy/kubernetes/streamer.yaml":     {`helm.sh/chart: streamer-(\S+)`, `app.kubernetes.io/version: "v([^"]+)"`, `image: \S+:v(\S+)`},
		"deploy/chart/README.md":              {`streamer:v(\S+)`},
		"client/python/pyproject.toml":        {`(?m)^version = "([^"]+)"$`},
		"client/typescript/README.md":         {`mongostream-streamer-(\S+)\.tgz`},
		"client/typescript/package.json":      {`(?m)^  "version": "([^"]+)"`},
		"client/typescript/package-lock.json": {`(?m)^  "version": "([^"]+)"`, `(?m)^      "name": "@mongostream/streamer",\n      "version": "([^"]+)"`},
		"examples/react/package-lock.json":    {`(?m)^      "name": "@mongostream/streamer",\n      "version": "([^"]+)"`},
	} {
		for _, pattern := range patterns {
			found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(path), -1)
			if len(found) == 0 {
				t.Errorf("%s: %s is not there", path, pattern)
			}
			for _, m := range found {
				if m[1] != version {
					t.Errorf("%s: %s is %s, want %s", path, pattern, m[1], version)
				}
			}
		}
	}
}
