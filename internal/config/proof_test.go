package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/internal/config/configtest"
)

// Every key of the reference has a test that shows its effect: the test exists, and it sets the
// key, by its name, its variable, or in a sink's YAML. Where it tests the part that obeys the key,
// by a field of its own, two other tests prove that the value arrives there
// (test/node.TestValuesArriveWhereTheyAct, internal/backend.TestKeysOfSinksReachTheirTargets).
func TestEveryKeyHasATestOfItsEffect(t *testing.T) {
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	proofs := make(map[string]configtest.Proof)
	for _, p := range configtest.Proofs() {
		if _, twice := proofs[p.Key]; twice {
			t.Errorf("%s has two rows", p.Key)
		}
		proofs[p.Key] = p
	}
	dirs := make(map[string]map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*`(STREAMER_\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		key, variable := row[1], row[2]
		p, there := proofs[key]
		delete(proofs, key)
		if !there {
			t.Errorf("%s has no test of its effect in configtest.Proofs", key)
			continue
		}
		dir, name, _ := strings.Cut(p.Test, ".")
		if dirs[dir] == nil {
			dirs[dir] = testsIn(t, dir)
		}
		source, exists := dirs[dir][name]
		if !exists {
			t.Errorf("%s: there is no test %s", key, p.Test)
			continue
		}
		if !mentions(source, key, variable, p.Field) {
			t.Errorf("%s: %s does not mention it", key, p.Test)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(proofs)) {
		t.Errorf("there is no key %s", key)
	}
}

// mentions reports whether a test names a key, or the field that stands for it.
func mentions(source, key, variable, field string) bool {
	if field != "" {
		return strings.Contains(strings.ToLower(source), strings.ToLower(field))
	}
	if strings.HasPrefix(key, "sinks[].") {
		last := key[strings.LastIndexByte(key, '.')+1:]
		return regexp.MustCompile(`\b` + last + `\b`).MatchString(source)
	}
	return regexp.MustCompile(`\b`+variable+`\b`).MatchString(source) || regexp.MustCompile(`\b`+regexp.QuoteMeta(key)+`\b`).MatchString(source)
}

// testsIn returns the source of each test in a folder of the repository, with its comment.
func testsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]string)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, is := decl.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				from := f.Pos()
				if f.Doc != nil {
					from = f.Doc.Pos()
				}
				tests[f.Name.Name] = string(text[set.Position(from).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return tests
}
