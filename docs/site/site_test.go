package main

import (
	"os"
	"path/filepath"
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
