package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf finds the tests and benchmarks of the tree by their packages' paths, also those of the
// modules connect and deploy/check.
func testsOf(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	tests, packages := map[string][]string{}, []string{"connect", "connect/jetstream", "deploy/check"}
	for _, p := range read(t) {
		packages = append(packages, p.Path)
	}
	for _, pkg := range packages {
		pattern := "*_test.go"
		if strings.HasSuffix(pkg, "test") { // the suites of ports
			pattern = "*.go"
		}
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), pattern))
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
// it, or the name alone, with its package in parentheses after it or not at all.
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
	check := func(document, text string, named *regexp.Regexp) (found int) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			found++
			if !exists(m[1], m[2]) {
				t.Errorf("%s: there is no test %s", document, m[0])
			}
		}
		return found
	}
	quoted := regexp.MustCompile("`(?:([a-z][a-z0-9_/]*)\\.)?((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`")
	of := regexp.MustCompile("((?:`Test\\w+`,? )+)\\(([a-z][a-z0-9_/]*)[,)]")
	least := map[string]int{"docs/bugs.md": 20, "docs/seeds.md": 20, "docs/security.md": 20, "docs/operations.md": 20, "docs/retention.md": 20, "README.md": 1, "ARCHITECTURE.md": 1}
	for document, text := range referringTexts(t) {
		if found := check(document, text, quoted); found < least[document] {
			t.Errorf("%s: only %d proofs were found", document, found)
		}
		for _, m := range of.FindAllStringSubmatch(text, -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				if !exists(m[2], name[2]) {
					t.Errorf("%s: there is no test %s in %s", document, name[2], m[2])
				}
			}
		}
	}
	bare, found := regexp.MustCompile(`\b(?:([a-z][a-z0-9_/]*)\.)?((?:Test|Benchmark|Fuzz)[A-Z]\w*)`), 0
	for _, p := range read(t) {
		for _, f := range p.Files {
			if f.Name == "doc.go" {
				found += check(p.Path+"/doc.go", f.Comments, bare)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d proofs were found in doc.go", found)
	}
}

// If the last column of a table in a document names tests, each row names one: a test, a script
// that exists, or a case of the script that the column's title names.
func TestRowsOfTestedTablesNameTheirTests(t *testing.T) {
	title := regexp.MustCompile(`^(?:test|tests|tested by)(?: \((\S+)\))?$`)
	test, script, quoted := regexp.MustCompile("`[\\w/.]*(?:Test|Benchmark|Fuzz)[A-Z]\\w*`"), regexp.MustCompile(`\btest/[\w/]+(?:\.\w+)?`), regexp.MustCompile(`"([^"]+)"`)
	rows := make(map[string]int)
	for document, text := range referringTexts(t) {
		if document == "docs/bugs.md" { // it has tests in all languages, and rows without one
			continue
		}
		cases, tested := "", false
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			switch m := title.FindStringSubmatch(last); {
			case !strings.HasPrefix(line, "|"):
				tested = false
				continue
			case m != nil && m[1] != "":
				of, err := os.ReadFile(filepath.Join(root, m[1]))
				if err != nil {
					t.Fatal(err)
				}
				cases, tested = string(of), true
				continue
			case m != nil:
				cases, tested = "", true
				continue
			case !tested || strings.HasPrefix(line, "|---"):
				continue
			}
			rows[document]++
			named := test.MatchString(last) || last == "the same"
			for _, name := range script.FindAllString(last, -1) {
				_, err := os.Stat(filepath.Join(root, name))
				named = named || err == nil
			}
			for i, m := range quoted.FindAllStringSubmatch(last, -1) {
				is := regexp.MustCompile(`(?m)^\s+'?` + regexp.QuoteMeta(m[1]) + `'?: `).MatchString(cases)
				named = is && (named || i == 0)
			}
			if !named {
				t.Errorf("%s: nothing that exists tests the row: %s", document, line)
			}
		}
	}
	for document, least := range map[string]int{"docs/operations.md": 25, "docs/guides.md": 12, "docs/security.md": 15} {
		if rows[document] < least {
			t.Errorf("%s: only %d rows were found", document, rows[document])
		}
	}
}

// Every requirement of the designs has its proof, its plan, or the reason why it needs neither.
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

// architecture returns the rows of the tables of ARCHITECTURE.md below a heading, by their cells.
func architecture(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for line := range strings.Lines(string(text)) {
		if title, found := strings.CutPrefix(line, "## "); found {
			in = strings.HasPrefix(title, heading)
		}
		if in && strings.HasPrefix(line, "| `") {
			rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"))
		}
	}
	if len(rows) < 5 {
		t.Fatalf("only %d rows were found below %s", len(rows), heading)
	}
	return rows
}

// A reader follows an event, an acknowledgement and a handoff from function to function: each
// exists, in the file that its row names: Type.Method, or Function.
func TestFunctionsThatTheArchitectureNamesExist(t *testing.T) {
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range architecture(t, "The walk") {
		if len(row) != 3 {
			t.Fatalf("a row of %d cells: %q", len(row), row)
		}
		declared := make(map[string]bool)
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			functions, err := functionsOf(filepath.Join(root, filepath.FromSlash(m[1])))
			if err != nil {
				t.Error(err)
			}
			for _, name := range functions {
				declared[name] = true
			}
		}
		named := quoted.FindAllStringSubmatch(row[1], -1)
		if len(named) == 0 {
			t.Errorf("no function in %q", row)
		}
		for _, m := range named {
			if !declared[m[1]] {
				t.Errorf("ARCHITECTURE.md: there is no %s in%s", m[1], row[0])
			}
		}
	}
}

// functionsOf returns the functions and methods that a file declares, as Function and Type.Method.
func functionsOf(file string) (names []string, err error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if of, ok := receiver.(*ast.Ident); ok {
				name = of.Name + "." + name
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// The table of rooms has every folder of the root that has packages, and no others.
func TestRoomsOfTheArchitectureAreThoseOfTheTree(t *testing.T) {
	rooms, named := make(map[string]bool), make(map[string]bool)
	for _, p := range read(t) {
		room, _, _ := strings.Cut(p.Path, "/")
		rooms[room] = true
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range architecture(t, "Rooms") {
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil {
				t.Error(err)
			}
			room, _, _ := strings.Cut(m[1], "/")
			named[room] = true
		}
	}
	for room := range rooms {
		if !named[room] {
			t.Errorf("ARCHITECTURE.md does not name the room %s", room)
		}
	}
}
