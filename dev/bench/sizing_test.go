package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the figures of docs/sizing.md anew")

// TestSizingHasTheMeasuredFigures compares the figures of docs/sizing.md with those of
// docs/benchmarks.md: headlines by their name, others by the contender and the column.
func TestSizingHasTheMeasuredFigures(t *testing.T) {
	const document = "../../docs/sizing.md"
	benchmarks, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]string{}
	var columns []string
	for line := range strings.Lines(string(benchmarks)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch name := strings.Trim(cells[0], "`"); {
		case cells[0] == "race/contender":
			columns = cells
		case columns != nil && len(cells) == len(columns):
			for i, column := range columns[1:] {
				figures[name+" "+column], _, _ = strings.Cut(cells[i+1], " ")
			}
		case name != cells[0] && len(cells) == 5:
			figures[name] = cells[2]
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	want := regexp.MustCompile(`<!-- ([^/\n][^\n]*?) -->[^<\n]*<!-- / -->`).ReplaceAllStringFunc(string(text), func(found string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(found, "<!-- "), " -->")
		n++
		if figures[name] == "" {
			t.Errorf("docs/benchmarks.md has no %q", name)
		}
		return "<!-- " + name + " -->" + figures[name] + "<!-- / -->"
	})
	if n < 5 {
		t.Errorf("only %d figures", n)
	}
	if *rewrite {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/sizing.md has other figures than docs/benchmarks.md: go generate ./dev/bench")
	}
}
