package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/internal/config/configtest"
)

// Every key of the reference has a test that shows its effect: the test exists, and it sets the
// key, by its name, its variable, or in a sink's YAML. Where it tests the part that obeys the key,
// by a field of its own, two other tests prove that the value arrives there
// (TestKeysArriveInTheFieldsThatObeyThem, internal/backend.TestKeysOfSinksReachTheirTargets).
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

// Where a node is assembled, a key whose effect is shown by a test of the part that obeys it is the
// value of that part's field. This reads the sources: it does not see whether the function that
// sets the field is called, nor whether the value is changed afterwards.
func TestKeysArriveInTheFieldsThatObeyThem(t *testing.T) {
	t.Parallel()
	fields := fieldsSet(t, "internal/wiring", "internal/listen", "internal/backend")
	keys := keyFields("", "Config", reflect.TypeFor[Config]())
	ofTargets := regexp.MustCompile(`^sinks\[\]\.\w+\.`) // package backend looks at them
	checked := 0
	for _, p := range configtest.Proofs() {
		if p.Field == "" || ofTargets.MatchString(p.Key) {
			continue
		}
		checked++
		if !slices.ContainsFunc(keys[p.Key], func(name string) bool { return fields[p.Field][name] }) {
			t.Errorf("%s: no field %s is set to %s", p.Key, p.Field, strings.Join(slices.Compact(keys[p.Key]), " or "))
		}
	}
	if checked < 50 {
		t.Errorf("only %d keys were looked for", checked)
	}
}

// keyFields returns the names under which a key's field occurs in sources, for each key of a
// section: by the section's name, by its type's, and as a part of the whole section.
func keyFields(prefix, name string, section reflect.Type) map[string][]string {
	all := make(map[string][]string)
	for f := range section.Fields() {
		key := prefix + f.Tag.Get("key")
		if _, leaf := f.Tag.Lookup("default"); leaf {
			all[key] = []string{name + "." + f.Name, section.Name() + "." + f.Name}
			continue
		}
		of := f.Type
		if of.Kind() == reflect.Slice {
			of, key = of.Elem(), key+"[]"
		}
		for inner, names := range keyFields(key+".", f.Name, of) {
			all[inner] = append(names, name+"."+f.Name)
		}
	}
	return all
}

// fieldsSet returns the fields that are set in the sources of folders, each with what occurs in the
// values: Cluster.LeaseTTL for cfg.Cluster.LeaseTTL, and for c.LeaseTTL if c is a Cluster.
func fieldsSet(t *testing.T, dirs ...string) map[string]map[string]bool {
	t.Helper()
	set := make(map[string]map[string]bool)
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no sources in %s: %v", dir, err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				if f, is := decl.(*ast.FuncDecl); is && !strings.HasSuffix(path, "_test.go") {
					(&function{names: make(map[string]string), set: set}).read(f)
				}
			}
		}
	}
	return set
}

// A function knows what its names are: sections of the configuration, by name or type.
type function struct {
	names map[string]string
	set   map[string]map[string]bool
}

// read adds the fields that the function sets.
func (f *function) read(decl *ast.FuncDecl) {
	for _, p := range decl.Type.Params.List {
		for _, name := range p.Names {
			f.name(name, p.Type)
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			f.name(n.Value, n.X)
		case *ast.AssignStmt:
			for i := range n.Lhs {
				if len(n.Rhs) == len(n.Lhs) {
					f.name(n.Lhs[i], n.Rhs[i])
					f.add(n.Lhs[i], n.Rhs[i])
				}
			}
		case *ast.KeyValueExpr:
			f.add(n.Key, n.Value)
		}
		return true
	})
}

// name notes that a variable is a section.
func (f *function) name(variable, section ast.Expr) {
	v, is := variable.(*ast.Ident)
	if s, selected := section.(*ast.SelectorExpr); is && selected {
		f.names[v.Name] = s.Sel.Name
	}
}

// add notes what occurs in the value of a field.
func (f *function) add(field, value ast.Expr) {
	name := ""
	switch k := field.(type) {
	case *ast.Ident:
		name = k.Name
	case *ast.SelectorExpr:
		name = k.Sel.Name
	}
	ast.Inspect(value, func(n ast.Node) bool {
		s, is := n.(*ast.SelectorExpr)
		if !is {
			return true
		}
		of := ""
		switch x := s.X.(type) {
		case *ast.Ident:
			of = f.names[x.Name]
		case *ast.SelectorExpr:
			of = x.Sel.Name
		}
		if f.set[name] == nil {
			f.set[name] = make(map[string]bool)
		}
		f.set[name][of+"."+s.Sel.Name] = true
		return false // a section in which the field is does not count
	})
}
