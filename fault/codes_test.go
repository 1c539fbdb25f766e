package fault_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
)

var rewrite = flag.Bool("rewrite", false, "write docs/codes.md anew")

// codesFile is the document of all codes.
const codesFile = "../docs/codes.md"

// TestCodesAreDocumented compares docs/codes.md with the catalogue; go generate ./fault writes it.
func TestCodesAreDocumented(t *testing.T) {
	want := document()
	if *rewrite {
		if err := os.WriteFile(codesFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(codesFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/codes.md is not what the catalogue says: go generate ./fault")
	}
}

// document writes the catalogue for people.
func document() []byte {
	var b bytes.Buffer
	b.WriteString(`<!-- Generated from fault/catalogue.go by go generate ./fault. Do not edit. -->

# Codes

Every error that reaches a person has a code, which never changes its meaning. ` + "`streamer explain CODE`" + ` shows the same on a terminal.

`)
	for _, e := range fault.Catalogue() {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", e.Code, strings.ToLower(string(e.Code)), e.Summary)
	}
	for _, e := range fault.Catalogue() {
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** %s\n\n*What to do:* %s\n", e.Code, strings.ToUpper(e.Summary[:1])+e.Summary[1:], e.Meaning, e.Remedy)
	}
	return b.Bytes()
}

// A code that nothing in the program uses promises what does not happen.
func TestEveryCodeIsUsed(t *testing.T) {
	files := token.NewFileSet()
	declared, err := parser.ParseFile(files, "code.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	unused := make(map[string]bool)
	ast.Inspect(declared, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				unused[name.Name] = name.IsExported()
			}
		}
		return true
	})
	maps.DeleteFunc(unused, func(_ string, exported bool) bool { return !exported })
	if len(unused) == 0 {
		t.Fatal("there are no codes")
	}
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path == filepath.Join("..", "fault") || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if name, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := name.X.(*ast.Ident); ok && from.Name == "fault" {
					delete(unused, name.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("nothing uses fault.%s", name)
	}
}
