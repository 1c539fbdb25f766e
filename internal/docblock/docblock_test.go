package docblock_test

import (
	"strings"
	"testing"

	"github.com/mongostream/streamer/internal/docblock"
)

// Blocks are found as a renderer of Markdown finds them, with whatever fence.
func TestBlocksAreThoseOfTheRenderedPage(t *testing.T) {
	t.Parallel()
	const text = "# A\n\n```sh\necho a\n```\n\n- item\n\n  ```yaml chart\n  a:\n    b: 1\n  ```\n\n~~~\n```\n~~~\n\n````md x\n```\n````\n\n1. one\n\n       of the item\n"
	blocks, err := docblock.Parse("a.md", text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range blocks {
		got = append(got, b.String()+" "+b.Kind+": "+b.Text)
	}
	want := []string{"a.md:4 sh: echo a\n", "a.md:10 yaml chart: a:\n  b: 1\n", "a.md:15 : ```\n", "a.md:19 md x: ```\n"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q; want %q", got, want)
	}
	for name, bad := range map[string]string{"no end": "```sh\necho\n", "an end of another kind": "```sh\necho\n~~~\n", "no fence": "text\n\n    echo a\n"} {
		if blocks, err := docblock.Parse("a.md", bad); err == nil {
			t.Errorf("%s: %v", name, blocks)
		}
	}
}
