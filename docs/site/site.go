package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

//go:embed page.html style.css script.js
var assets embed.FS

const (
	index      = "docs/index.md"
	repository = "https://github.com/mongostream/streamer"
)

// A document is a page of the site.
type document struct {
	path    string // in the repository
	source  []byte
	tree    ast.Node
	title   string
	anchors map[string]bool
	links   []string // paths of other documents
}

// A site is all documents, by their paths.
type site struct {
	root      string
	markdown  goldmark.Markdown
	documents map[string]*document
	images    map[string]bool
	problems  []error
}

// build writes the site of a repository below a folder, and returns how many pages it has. The
// error joins all that is wrong with the documents.
func build(root, out string) (pages int, err error) {
	s := &site{root: root, documents: map[string]*document{}, images: map[string]bool{}}
	s.markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(
		html.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(codeBlocks{}, 100)),
	))
	if err := s.read(); err != nil {
		return 0, err
	}
	navigation := s.navigation()
	for _, path := range slices.Sorted(maps.Keys(s.documents)) {
		s.link(s.documents[path])
	}
	s.findOrphans()
	if len(s.problems) > 0 {
		return 0, errors.Join(s.problems...)
	}
	return len(s.documents), s.write(out, navigation)
}

// read reads the documents of the repository.
func (s *site) read() error {
	return filepath.WalkDir(s.root, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != s.root && isLeftOut(name):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".md"):
			return nil
		}
		relative, err := filepath.Rel(s.root, file)
		if err != nil {
			return err
		}
		if folder, _, below := strings.Cut(filepath.ToSlash(relative), "/"); below && !slices.Contains([]string{"docs", "clients", "examples"}, folder) {
			return nil // parts of programs
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		d := &document{path: filepath.ToSlash(relative), source: source, anchors: map[string]bool{}}
		d.tree = s.markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(d))))
		d.nameRows()
		d.title = d.path
		if heading, ok := d.tree.FirstChild().(*ast.Heading); ok {
			d.title = plain(heading, source)
		} else if first := firstHeading(d.tree); first != nil {
			d.title = plain(first, source)
		}
		s.documents[d.path] = d
		return nil
	})
}

// isLeftOut reports whether the documents of a folder are not of the site.
func isLeftOut(folder string) bool {
	return strings.HasPrefix(folder, ".") || slices.Contains([]string{"node_modules", "bin", "testdata"}, folder)
}

// Generate implements parser.IDs: the fragment of a heading, as GitHub makes it.
func (d *document) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ', r == '-':
			return '-'
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(value)))
	for n, first := 1, id; d.anchors[id]; n++ {
		id = fmt.Sprintf("%s-%d", first, n)
	}
	d.anchors[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (d *document) Put(value []byte) { d.anchors[string(value)] = true }

func firstHeading(tree ast.Node) *ast.Heading {
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		if heading, ok := n.(*ast.Heading); ok {
			return heading
		}
	}
	return nil
}

// plain returns the text of a node.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch t := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(t.Segment.Value(source))
				if t.SoftLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.FencedCodeBlock:
			if entering {
				b.Write(t.Lines().Value(source))
			}
		case *ast.CodeSpan, *ast.Link, *ast.Emphasis:
		default:
			if !entering && t.Type() == ast.TypeBlock && t.NextSibling() != nil { // of an item, a cell, a paragraph
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// link has the links of a document lead to pages, pictures, or files of the repository.
func (s *site) link(d *document) {
	_ = ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(s.target(d, string(n.Destination)))
		case *ast.Image:
			n.Destination = []byte(s.target(d, string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
}

// target returns where a link of a document leads in the site.
func (s *site) target(d *document, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	file, fragment, _ := strings.Cut(link, "#")
	to := d.path
	if file != "" {
		to = path.Join(path.Dir(d.path), file)
	}
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(to)))
	other := s.documents[to]
	switch {
	case err != nil:
		s.problems = append(s.problems, fmt.Errorf("%s: %s leads nowhere", d.path, link))
	case info.IsDir():
		return repository + "/tree/main/" + to
	case other != nil && fragment != "" && !other.anchors[fragment]:
		s.problems = append(s.problems, fmt.Errorf("%s: %s: there is no such heading", d.path, link))
	case other != nil:
		d.links = append(d.links, to)
		if fragment != "" {
			fragment = "#" + fragment
		}
		if file == "" {
			return fragment
		}
		return htmlPath(file) + fragment
	case strings.HasPrefix(to, "docs/img/"):
		s.images[to] = true
	default:
		return repository + "/blob/main/" + to
	}
	return link
}

func htmlPath(file string) string { return strings.TrimSuffix(file, ".md") + ".html" }

// A group is a part of the navigation.
type group struct {
	Title string
	Pages []entry
}

// An entry is a page in the navigation.
type entry struct {
	Title, Path string // Path from the root of the site
}

// navigation returns the rows of the table in the index: what a reader wants to do, and the pages
// about it.
func (s *site) navigation() (groups []group) {
	d := s.documents[index]
	if d == nil {
		s.problems = append(s.problems, fmt.Errorf("there is no %s", index))
		return nil
	}
	_ = ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering || n.Kind().String() != "TableRow" {
			return ast.WalkContinue, nil
		}
		title := plain(n.FirstChild(), d.source)
		g := group{Title: strings.ToUpper(title[:1]) + title[1:]}
		_ = ast.Walk(n.LastChild(), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if l, ok := n.(*ast.Link); ok && entering {
				if to := path.Join("docs", string(l.Destination)); s.documents[to] != nil {
					g.Pages = append(g.Pages, entry{plain(l, d.source), htmlPath(to)})
				}
			}
			return ast.WalkContinue, nil
		})
		groups = append(groups, g)
		return ast.WalkContinue, nil
	})
	return groups
}

// findOrphans looks for pages to which no links lead from the index.
func (s *site) findOrphans() {
	reached, next := map[string]bool{index: true}, []string{index}
	for len(next) > 0 {
		d := s.documents[next[0]]
		next = next[1:]
		for _, to := range d.links {
			if !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(s.documents)) {
		if !reached[file] {
			s.problems = append(s.problems, fmt.Errorf("%s: no link from %s leads there", file, index))
		}
	}
}

// around returns the pages before and after a page in the order of the navigation. The home page is
// before the first.
func around(order []entry, here string) (previous, next *entry) {
	order = append([]entry{{"Home", htmlPath(index)}}, order...)
	at := slices.IndexFunc(order, func(e entry) bool { return e.Path == here })
	if at > 0 {
		previous = &order[at-1]
	}
	if at >= 0 && at+1 < len(order) {
		next = &order[at+1]
	}
	return previous, next
}

// write writes the pages, the pictures, the style, the script and the search index.
func (s *site) write(out string, navigation []group) error {
	page, err := template.ParseFS(assets, "page.html")
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	var order []entry
	for _, g := range navigation {
		order = append(order, g.Pages...)
	}
	for file, d := range s.documents {
		var body, whole bytes.Buffer
		if err := s.markdown.Renderer().Render(&body, d.source, d.tree); err != nil {
			return fmt.Errorf("render %s: %w", file, err)
		}
		previous, next := around(order, htmlPath(file))
		err := page.Execute(&whole, map[string]any{
			"Title": d.title, "Body": template.HTML(body.String()), "Groups": navigation, "Up": strings.Repeat("../", strings.Count(file, "/")), //nolint:gosec // our documents
			"Here": htmlPath(file), "Source": repository + "/blob/main/" + file, "Contents": d.contents(), "Previous": previous, "Next": next,
		})
		if err != nil {
			return err
		}
		files[htmlPath(file)] = whole.Bytes()
	}
	files["index.html"] = []byte("<!doctype html><meta charset=\"utf-8\"><title>Streamer</title><meta http-equiv=\"refresh\" content=\"0; url=docs/index.html\">\n")
	for _, asset := range []string{"style.css", "script.js"} {
		if files[asset], err = assets.ReadFile(asset); err != nil {
			return err
		}
	}
	if files["search.js"], err = s.searchIndex(); err != nil {
		return err
	}
	for image := range s.images {
		if files[image], err = os.ReadFile(filepath.Join(s.root, filepath.FromSlash(image))); err != nil {
			return err
		}
	}
	for file, data := range files {
		to := filepath.Join(out, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
