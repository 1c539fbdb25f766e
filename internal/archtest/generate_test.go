package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that write generated files also fail where one is not fresh, so CI does not generate
// again: each of them must be there.
func TestGeneratedFilesAreTested(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^//go:generate (.*)$`)
	writes := regexp.MustCompile(`^go test -run (Test\w+) -args -rewrite$`)
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
			if by == nil || !declared(t, filepath.Dir(path), by[1]) {
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

// declared reports whether a folder has a test.
func declared(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
