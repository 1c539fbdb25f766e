package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// The tests that write generated files also fail where one is not fresh, so CI does not generate
// again: each of them must be there.
func TestGeneratedFilesAreTested(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^//go:generate (.*)$`)
	writes := regexp.MustCompile(`^go test -run (Test\w+) -args -rewrite$`)
	tests := testsOf(t)
	n := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range directive.FindAllStringSubmatch(string(text), -1) {
			n++
			by := writes.FindStringSubmatch(line[1])
			if pkg, err := filepath.Rel(root, filepath.Dir(path)); err != nil || by == nil || !slices.Contains(tests[filepath.ToSlash(pkg)], by[1]) {
				t.Errorf("%s: no test of the package says whether what %q writes is fresh", path, line[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 5 {
		t.Errorf("only %d files are generated", n)
	}
}
