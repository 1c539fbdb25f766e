package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// sources are the packages of the tree, read once for all tests.
//
//nolint:gochecknoglobals // a cache
var sources = sync.OnceValues(func() ([]Package, error) { return Read(root) })

// read reads the tree itself, without the go command: so that go test knows its
// dependencies, and repeats it when one changes.
func read(t *testing.T) []Package {
	t.Helper()
	tree, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tree, func(p Package) bool { return p.Path == "change" }) {
		t.Fatal("the tree was not found")
	}
	return tree
}

func report(t *testing.T, broken []string) {
	t.Helper()
	for _, b := range broken {
		t.Error(b)
	}
}

func TestImportsFollowTheRules(t *testing.T)        { report(t, CheckImports(read(t))) }
func TestLibrariesStayInTheirPackage(t *testing.T)  { report(t, CheckLibraries(read(t))) }
func TestMetricsStayInTheirFile(t *testing.T)       { report(t, CheckMetrics(read(t))) }
func TestNoTestWaitsForTimeToPass(t *testing.T)     { report(t, CheckSleeps(read(t))) }
func TestLateGoroutinesAreWaitedFor(t *testing.T)   { report(t, CheckLeaks(read(t))) }
func TestSizesNamesAndDocsFollowStyle(t *testing.T) { report(t, CheckShape(read(t))) }
func TestCommentsAreInPlainEnglish(t *testing.T)    { report(t, CheckEnglish(read(t))) }

func TestDocumentsAreInPlainEnglish(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		base := filepath.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && (base[0] == '.' || base == "node_modules" || base == "bin" || base == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		place, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found++
		report(t, checkText(filepath.ToSlash(place), string(text), bentInDocuments))
		return nil
	})
	if err != nil || found < 50 {
		t.Errorf("%d documents were found, %v", found, err)
	}
}

func TestServiceLinksNothingOfDevelopment(t *testing.T) {
	const service = "cmd/streamer"
	if !slices.ContainsFunc(read(t), func(p Package) bool { return p.Path == service }) {
		return // not built yet; once it is, it is looked at
	}
	linked, err := Link(t.Context(), root, service)
	if err != nil {
		t.Fatal(err)
	}
	report(t, CheckLinked(linked))
}

func TestEveryLibraryHasItsReasonOnRecord(t *testing.T) {
	record, err := os.ReadFile(root + "/docs/adr/0002-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	requirements, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries() {
		if !strings.Contains(string(record), "`"+l.module+"`") {
			t.Errorf("docs/adr/0002-dependencies.md does not say why %s is needed", l.module)
		}
		if !strings.Contains(string(requirements), "\t"+l.module+" v") {
			t.Errorf("%s is in the table and not in go.mod", l.module)
		}
	}
}

func TestEveryRuleHasAReason(t *testing.T) {
	for _, r := range rules() {
		if r.why == "" {
			t.Errorf("%v has none", r.pkgs)
		}
		for _, pattern := range r.pkgs {
			if !slices.ContainsFunc(read(t), func(p Package) bool { return matches(pattern, p.Path) }) {
				t.Errorf("there is no package %s", pattern)
			}
		}
	}
	for _, l := range libraries() {
		if l.why == "" {
			t.Errorf("%s has none", l.module)
		}
	}
}

// TestBrokenRulesAreFound shows each check a tree that breaks it.
func TestBrokenRulesAreFound(t *testing.T) {
	file := func(name string, imports ...string) File {
		return File{Name: name, Lines: 10, Test: strings.HasSuffix(name, "_test.go"), Imports: imports}
	}
	pkg := func(path string, files ...File) Package {
		return Package{Path: path, Name: path[strings.LastIndexByte(path, '/')+1:], Files: append(files, File{Name: "doc.go", Lines: 5})}
	}
	long := func(name string, lines int) File { return File{Name: name, Lines: lines} }
	generated := File{Name: "x.pb.go", Lines: 5000, Generated: true}
	says := func(phrase string, times int) File {
		return File{Name: "a.go", Comments: strings.Repeat(phrase+"\n", times)}
	}
	tests := []struct {
		name  string
		check func([]Package) []string
		tree  Package
		want  string // "" where nothing is wrong
	}{
		{"allowed", CheckImports, pkg("match", file("a.go", "fmt", "github.com/mongostream/streamer/change", "github.com/mongostream/streamer/fault")), ""},
		{"stage to stage", CheckImports, pkg("match", file("a.go", "github.com/mongostream/streamer/gap")), "match/a.go: imports gap"},
		{"stage to stage in a test", CheckImports, pkg("match", file("a_test.go", "github.com/mongostream/streamer/gap")), ""},
		{"fault imports ours", CheckImports, pkg("fault", file("a.go", "github.com/mongostream/streamer/change")), "fault/a.go: imports change"},
		{"without a rule", CheckImports, pkg("lain", file("a.go", "github.com/mongostream/streamer/gap")), ""},
		{"wiring", CheckImports, pkg("cmd/streamer", file("a.go", "github.com/mongostream/streamer/match", "github.com/mongostream/streamer/internal/etcd")), ""},
		{"module root", CheckImports, pkg("match", file("a.go", "github.com/mongostream/streamer")), "match/a.go: imports ."},
		{"room in devmongo", CheckImports, pkg("dev/mongo/wire", file("a.go", "github.com/mongostream/streamer/dev/mongo/doc")), ""},
		{"devmongo leans on ours", CheckImports, pkg("dev/mongo/wire", file("a.go", "github.com/mongostream/streamer/change")), "imports change"},
		{"driver at home", CheckLibraries, pkg("internal/mongodb", file("a.go", "go.mongodb.org/mongo-driver/v2/bson")), ""},
		{"driver abroad", CheckLibraries, pkg("match", file("a.go", "go.mongodb.org/mongo-driver/v2/bson")), "belongs in [internal/mongodb"},
		{"driver in a test", CheckLibraries, pkg("match", file("a_test.go", "go.mongodb.org/mongo-driver/v2/bson")), ""},
		{"tests' library in production", CheckLibraries, pkg("match", file("a.go", "pgregory.net/rapid")), "match/a.go: imports pgregory.net/rapid"},
		{"tests' library in a helper", CheckLibraries, pkg("change/changetest", file("a.go", "pgregory.net/rapid")), ""},
		{"unknown library", CheckLibraries, pkg("match", file("a_test.go", "example.org/x")), "example.org/x is not in the table"},
		{"similar path", CheckLibraries, pkg("internal/mongodb", file("a.go", "go.mongodb.org/mongo-driver/v22")), "is not in the table"},
		{"etcd's server in its client", CheckLibraries, pkg("internal/etcd", file("a.go", "go.etcd.io/etcd/server/v3/embed")), "belongs in [dev/etcd"},
		{"promhttp in a stage", CheckMetrics, pkg("match", file("a.go", "github.com/prometheus/client_golang/prometheus/promhttp")), "match/a.go: imports"},
		{"metrics beside metrics.go", CheckMetrics, pkg("match", File{Name: "a.go", Prometheus: []string{"Counter", "Registerer"}}), "prometheus.Counter belongs"},
		{"Registerer anywhere", CheckMetrics, pkg("match", File{Name: "a.go", Prometheus: []string{"Registerer"}}), ""},
		{"metrics in metrics.go", CheckMetrics, pkg("match", File{Name: "metrics.go", Prometheus: []string{"Counter"}}), ""},
		{"sleeping test", CheckSleeps, pkg("match", File{Name: "a_test.go", Test: true, Sleeps: true}), "match/a_test.go: sleeps"},
		{"sleeping bubble", CheckSleeps, pkg("match", File{Name: "a_test.go", Test: true, Sleeps: true, Imports: []string{"testing/synctest"}}), ""},
		{"impatient about leaks", CheckLeaks, pkg("match", File{Name: "a_test.go", Test: true, Imports: []string{"go.uber.org/goleak"}}), "match/a_test.go: imports goleak"},
		{"patient about leaks", CheckLeaks, pkg("internal/leaktest", file("a.go", "go.uber.org/goleak")), ""},
		{"long files", CheckShape, pkg("match", long("a.go", 4000), File{Name: "a_test.go", Lines: 4000, Test: true}, generated), ""},
		{"long main", CheckShape, Package{Path: "cmd/x", Name: "main", Files: []File{long("doc.go", 1), long("main.go", 81)}}, "cmd/x/main.go: 81 lines"},
		{"long doc", CheckShape, Package{Path: "match", Name: "match", Files: []File{long("doc.go", 121)}}, "match/doc.go: 121 lines"},
		{"no doc", CheckShape, Package{Path: "match", Name: "match", Files: []File{long("a.go", 1)}}, "match: has no doc.go"},
		{"empty name", CheckShape, pkg("internal/util"), "the name util says nothing"},
		{"clauses as nouns", CheckEnglish, pkg("match", says("x returns what is read", 5)), "match: 5 bent phrases in 25 words"},
		{"idioms", CheckEnglish, pkg("match", says("whoever stands behind it is told of it no more", 1)), `["behind" "is told" "no more" "stands" "whoever"]`},
		{"a few", CheckEnglish, pkg("match", says("x returns what is read", 4)), ""},
		{"a few of many words", CheckEnglish, pkg("match", says("x returns what is read", 8), says(strings.Repeat("plain ", 1000), 1)), ""},
		{"bent test", CheckEnglish, pkg("match", File{Name: "a_test.go", Test: true, Comments: strings.Repeat("what is ", 9)}), ""},
		{"bent but generated", CheckEnglish, pkg("match", File{Name: "a.pb.go", Generated: true, Comments: strings.Repeat("what is ", 9)}), ""},
		{"init", CheckShape, pkg("match", File{Name: "a.go", Inits: true}), "match/a.go: has an init()"},
	}
	for _, tt := range tests {
		switch broken := strings.Join(tt.check([]Package{tt.tree}), "\n"); {
		case tt.want == "" && broken != "":
			t.Errorf("%s: %s", tt.name, broken)
		case !strings.Contains(broken, tt.want):
			t.Errorf("%s: found %q", tt.name, broken)
		}
	}
}

func TestHelperInProductionIsFound(t *testing.T) {
	helper := Package{Path: "change/changetest", Name: "changetest"}
	user := Package{Path: "cmd/streamer", Name: "main", Files: []File{{Name: "a.go", Imports: []string{"github.com/mongostream/streamer/change/changetest"}}}}
	broken := CheckImports([]Package{helper, user})
	if len(broken) != 1 || !strings.Contains(broken[0], "which is for tests only") {
		t.Error(broken)
	}
}

func TestForbiddenLinkIsFoundWithItsWay(t *testing.T) {
	broken := CheckLinked([]Linked{
		{ImportPath: "github.com/mongostream/streamer/dev/etcd"},
		{ImportPath: "github.com/mongostream/streamer/internal/etcd", Imports: []string{"github.com/mongostream/streamer/dev/etcd"}},
		{ImportPath: "github.com/mongostream/streamer/cmd/streamer", Imports: []string{"github.com/mongostream/streamer/internal/etcd"}},
	})
	if want := "links github.com/mongostream/streamer/cmd/streamer → github.com/mongostream/streamer/internal/etcd → github.com/mongostream/streamer/dev/etcd"; len(broken) != 1 || broken[0] != want {
		t.Error(broken)
	}
}

func TestSourcesAreReadAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"match", "match/testdata", ".git"} {
		if err := os.Mkdir(dir+"/"+folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("match/a.go", "//go:build plan9\n\npackage match // plain\n\nimport p \"github.com/prometheus/client_golang/prometheus\"\n\nvar _ p.Counter\n\nfunc init() {}\n")
	write("match/b.go", "// Code generated by hand. DO NOT EDIT.\n\npackage match\n\ntype t struct{}\n\nfunc (t) init() {}\n")
	write("match/c_test.go", "package lane_test\n\nimport \"time\"\n\nvar nap = time.Sleep\n")
	write("match/testdata/x.go", "no Go at all")
	write(".git/x.go", "no Go at all")
	tree, err := Read(dir)
	if err != nil || len(tree) != 1 || tree[0].Path != "match" || tree[0].Name != "match" || len(tree[0].Files) != 3 {
		t.Fatalf("%+v, %v", tree, err)
	}
	a, b, c := tree[0].Files[0], tree[0].Files[1], tree[0].Files[2]
	if !a.Inits || a.Lines != 9 || !slices.Equal(a.Prometheus, []string{"Counter"}) || a.Generated || a.Test {
		t.Errorf("%+v", a)
	}
	if a.Comments != "go:build plan9\n plain\n" {
		t.Errorf("comments %q", a.Comments)
	}
	if b.Inits || !b.Generated || !c.Test || !c.Sleeps || a.Sleeps {
		t.Errorf("%+v %+v", b, c)
	}
}
