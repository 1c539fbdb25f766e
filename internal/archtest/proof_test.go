package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf finds the tests and benchmarks of the tree by their packages' paths, also those of the
// module that checks deploy.
func testsOf(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	tests, packages := map[string][]string{}, []string{"deploy/check"}
	for _, p := range read(t) {
		packages = append(packages, p.Path)
	}
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				tests[pkg] = append(tests[pkg], m[1])
			}
		}
	}
	return tests
}

// Proofs that documents name exist: package.TestName, the package by its whole path or the end of
// it, or the name alone.
func TestProofsThatDocumentsNameExist(t *testing.T) {
	tests := testsOf(t)
	exists := func(pkg, name string) bool {
		for p, names := range tests {
			if (pkg == "" || p == pkg || path.Base(p) == pkg) && slices.Contains(names, name) {
				return true
			}
		}
		return false
	}
	named := regexp.MustCompile("`(?:([a-z][a-z0-9_/]*)\\.)?((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`")
	for _, document := range []string{"ARCHITECTURE.md", "docs/bugs.md", "docs/seeds.md"} {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllStringSubmatch(string(text), -1)
		if len(found) < 20 {
			t.Errorf("%s: only %d proofs were found", document, len(found))
		}
		for _, m := range found {
			if !exists(m[1], m[2]) {
				t.Errorf("%s: there is no test %s", document, m[0])
			}
		}
	}
}

// Every row of what the designs ask for has its proof, its plan, or the reason why it needs
// neither.
func TestEveryRowOfTheDesignsIsProvedOrPlanned(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/seeds.md"))
	if err != nil {
		t.Fatal(err)
	}
	proof := regexp.MustCompile("^`[a-z][a-z0-9_/]*\\.(Test|Benchmark|Fuzz)[A-Z]\\w*`")
	transcript := regexp.MustCompile("`([a-z0-9_/]+/testdata/[^`]+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[2]) == "proof" {
			if strings.HasPrefix(line, "|") && len(cells) != 3 {
				t.Errorf("a row of %d cells: %s", len(cells), line)
			}
			continue
		}
		rows++
		said := strings.TrimSpace(cells[2])
		if !proof.MatchString(said) && !strings.HasPrefix(said, "planned: ") && !strings.HasPrefix(said, "does not apply: ") {
			t.Errorf("neither proved nor planned: %s", line)
		}
		for _, m := range transcript.FindAllStringSubmatch(said, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("there is no transcript %s", m[1])
			}
		}
	}
	if rows < 60 {
		t.Errorf("only %d rows were found", rows)
	}
}

// The path of an event is a list of files that a stranger finds.
func TestFilesThatTheArchitectureNamesExist(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9_/]+\\.go)`").FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Errorf("%d files are named", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join("..", "..", string(m[1]))); err != nil {
			t.Error(err)
		}
	}
}
