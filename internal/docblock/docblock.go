package docblock

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A Block is a fenced block of code.
type Block struct {
	Path string // of the document, from the root of the tree, with slashes
	Line int    // of the text's first line
	Kind string // what stands after the fence
	Text string // without the indentation of the fence
}

// String returns the place of the block.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Path, b.Line) }

// Of returns the blocks of some kinds in all documents below root, ordered by their places.
func Of(root string, kinds ...string) ([]Block, error) {
	all, err := All(root)
	return slices.DeleteFunc(all, func(b Block) bool { return !slices.Contains(kinds, b.Kind) }), err
}

// All returns the blocks of all documents below root, ordered by their places. It skips what is
// built, installed or hidden.
func All(root string) (all []Block, err error) {
	tree := os.DirFS(root)
	apart := []string{"node_modules", "bin", "testdata"}
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		isApart := path != "." && (strings.HasPrefix(name, ".") || slices.Contains(apart, name))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isApart:
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		blocks, err := Parse(path, string(text))
		all = append(all, blocks...)
		return err
	})
	return all, err
}

var (
	fence    = regexp.MustCompile("^([ \t]*)(`{3,}|~{3,})[ \t]*([^`\n]*)$")
	indented = regexp.MustCompile(`^(?: {4}|\t)\s*\S`)
	item     = regexp.MustCompile(`^(?:[-*+]|\d+[.)])\s`)
)

// closes reports whether a fence ends the block that another one begins: it has no kind, and as
// many of the same characters or more. Both are in their parts.
func closes(end, begin []string) bool {
	return end[3] == "" && end[2][0] == begin[2][0] && len(end[2]) >= len(begin[2])
}

// Parse returns the blocks of one document. A block without an end is an error, because everything
// after it would be code. So is code that is only indented: it has no kind.
func Parse(path, text string) (all []Block, err error) {
	var open *Block
	var begin []string // the fence and its parts
	list, blank := false, true
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && closes(m, begin):
			all = append(all, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, begin[1]) + "\n"
		case m != nil:
			begin = m
			open = &Block{Path: path, Line: i + 2, Kind: strings.TrimSpace(m[3])}
		case blank && !list && indented.MatchString(line):
			return nil, fmt.Errorf("%s:%d: code without a fence has no kind", path, i+1)
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t"):
			list = item.MatchString(line)
		}
		blank = strings.TrimSpace(line) == ""
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", path, open.Line-1)
	}
	return all, nil
}
