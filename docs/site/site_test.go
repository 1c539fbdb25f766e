package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes files below a folder.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for file, text := range files {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const start = "# Start\n\n| to | read |\n|---|---|\n| begin | [One](one.md) |\n\n"

func TestPagesLeadToEachOther(t *testing.T) {
	root := write(t, map[string]string{
		"docs/index.md": start, "docs/one.md": "# One\n\n[two](../README.md#a-part-of-it) [code](../main.go) [all](../docs)\n", "README.md": "# Two\n\n## A `part` of it!\n",
		"main.go": "package main\n",
	})
	out := t.TempDir()
	if pages, err := build(root, out); err != nil || pages != 3 {
		t.Fatalf("%d pages, %v", pages, err)
	}
	text, err := os.ReadFile(filepath.Join(out, "docs/one.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`href="../README.html#a-part-of-it"`, `href="` + repository + `/blob/main/main.go"`, `href="` + repository + `/tree/main/docs"`, `<h2>Begin</h2>`, `aria-current="page"`,
		`href="../style.css"`, "<title>One · Streamer</title>",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if text, err := os.ReadFile(filepath.Join(out, "README.html")); err != nil || !strings.Contains(string(text), `id="a-part-of-it"`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestLinksThatLeadNowhereAreErrors(t *testing.T) {
	root := write(t, map[string]string{"docs/index.md": start, "docs/one.md": "# One\n\n[a](gone.md) [b](index.md#gone)\n", "docs/orphan.md": "# Alone\n"})
	_, err := build(root, t.TempDir())
	for _, want := range []string{"docs/one.md: gone.md leads nowhere", "docs/one.md: index.md#gone: there is no such heading", "docs/orphan.md: no link"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// read reads a file of a site.
func read(t *testing.T, out, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func has(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

const keys = "# One\n\n## First\n\n```go\nfunc main() {}\n```\n\n## Second\n\n| key | meaning |\n|---|---|\n| `mongodb.uri` | where MongoDB is |\n| `a`, `b` | two |\n\n### Third\n\nText of it.\n"

func TestPagesHaveContentsNamesAndColours(t *testing.T) {
	root := write(t, map[string]string{"docs/index.md": start + "[key](one.md#mongodb.uri)\n", "docs/one.md": keys})
	out := t.TempDir()
	if _, err := build(root, out); err != nil {
		t.Fatal(err)
	}
	page := read(t, out, "docs/one.html")
	has(t, page, `<li><a href="#first">First</a></li>`, `<li class="deep"><a href="#third">Third</a></li>`, `<tr id="mongodb.uri">`, `<span class="kd">func</span>`)
	if strings.Contains(page, `<tr id="a`) {
		t.Error("a row with two keys has the name of one")
	}
	if home := read(t, out, "docs/index.html"); strings.Contains(home, "On this page") {
		t.Error("a page without sections has contents")
	}
}

func TestPagesFollowEachOther(t *testing.T) {
	root := write(t, map[string]string{
		"docs/index.md": strings.Replace(start, "[One](one.md)", "[One](one.md), [Two](two.md)", 1), "docs/one.md": "# One\n", "docs/two.md": "# Two\n[more](more.md)\n", "docs/more.md": "# More\n",
	})
	out := t.TempDir()
	if _, err := build(root, out); err != nil {
		t.Fatal(err)
	}
	has(t, read(t, out, "docs/index.html"), `rel="next" href="../docs/one.html"`)
	has(t, read(t, out, "docs/one.html"), `rel="prev" href="../docs/index.html"`, `rel="next" href="../docs/two.html"`)
	for _, file := range []string{"docs/more.html", "docs/two.html"} {
		if strings.Contains(read(t, out, file), `rel="next"`) {
			t.Errorf("%s: a page follows", file)
		}
	}
}

func TestSearchFindsSectionsAndRows(t *testing.T) {
	root := write(t, map[string]string{"docs/index.md": start, "docs/one.md": keys})
	out := t.TempDir()
	if _, err := build(root, out); err != nil {
		t.Fatal(err)
	}
	text, is := strings.CutPrefix(read(t, out, "search.js"), "globalThis.searchIndex = ")
	var all []found
	if err := json.Unmarshal([]byte(text), &all); err != nil || !is {
		t.Fatalf("%v: %s", err, text)
	}
	for _, want := range []found{
		{"One", "First", "docs/one.html#first", "func main() {}"},
		{"One", "mongodb.uri", "docs/one.html#mongodb.uri", "mongodb.uri where MongoDB is"},
		{"One", "Second", "docs/one.html#second", "key meaning a, b two"},
		{"One", "Third", "docs/one.html#third", "Text of it."},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no %+v in %+v", want, all)
		}
	}
}
