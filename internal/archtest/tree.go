package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of our module.
const Module = "github.com/mongostream/streamer"

// prometheusPath is the package whose use is checked name by name.
const prometheusPath = "github.com/prometheus/client_golang/prometheus"

// A Package is a folder with Go files.
type Package struct {
	Path  string // within the module: internal/etcd; "." is its root
	Name  string
	Files []File
}

// helper reports whether the package exists for tests.
func (p Package) helper() bool {
	return p.Path != "internal/archtest" && strings.HasSuffix(p.Path, "test")
}

// A File is a source file, reduced to the needs of the checks.
type File struct {
	Name       string
	Lines      int
	Test       bool
	Generated  bool
	Imports    []string
	Inits      bool     // has a func init
	Prometheus []string // the names that it uses of package prometheus
	Sleeps     bool     // calls or names time.Sleep
	Comments   string   // their texts
}

// Read reads the packages below root. testdata, folders that begin with a dot or an underscore, and
// other modules are no packages.
func Read(root string) ([]Package, error) {
	found := map[string]*Package{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			isIgnored := base == "testdata" || base[0] == '.' || base[0] == '_' // by go, too
			if name != root && (isIgnored || module(name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		p, ok := found[dir]
		if !ok {
			p = &Package{Path: dir}
			found[dir] = p
		}
		return p.add(name)
	})
	if err != nil {
		return nil, fmt.Errorf("read source tree: %w", err)
	}
	packages := make([]Package, 0, len(found))
	for _, p := range found {
		packages = append(packages, *p)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return packages, nil
}

// module reports whether a folder is a module of its own, whose dependencies never enter the
// program.
func module(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// add parses a file and adds it to its package.
func (p *Package) add(name string) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := File{
		Name:      path.Base(filepath.ToSlash(name)),
		Lines:     bytes.Count(src, []byte("\n")),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
	}
	for _, spec := range tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.Imports = append(f.Imports, imported)
		switch imported {
		case prometheusPath:
			f.Prometheus = selected(tree, spec, "prometheus")
		case "time":
			f.Sleeps = slices.Contains(selected(tree, spec, "time"), "Sleep")
		}
	}
	for _, decl := range tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		f.Inits = f.Inits || ok && fn.Recv == nil && fn.Name.Name == "init"
	}
	if !f.Test {
		p.Name = tree.Name.Name
		f.Comments = comments(tree)
	}
	p.Files = append(p.Files, f)
	return nil
}

// comments returns the texts of all comments of a file.
func comments(tree *ast.File) string {
	var text strings.Builder
	for _, group := range tree.Comments {
		for _, c := range group.List {
			text.WriteString(strings.TrimPrefix(c.Text, "//"))
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// selected returns the names that a file uses of an imported package, which is called local unless
// the import says otherwise; a dot import shows none and counts as a name itself.
func selected(tree *ast.File, spec *ast.ImportSpec, local string) []string {
	if spec.Name != nil {
		local = spec.Name.Name
	}
	if local == "." {
		return []string{local}
	}
	names := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				names[s.Sel.Name] = true
			}
		}
		return true
	})
	var sorted []string
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}
