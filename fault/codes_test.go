package fault_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
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
