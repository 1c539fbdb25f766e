package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
)

// A found entry is a part of a page in the search index: a section, or a row with a name.
type found struct {
	Title   string `json:"t"`
	Heading string `json:"h"`
	URL     string `json:"u"`
	Text    string `json:"x"`
}

// searchIndex returns a script with the parts of all pages.
func (s *site) searchIndex() ([]byte, error) {
	var all []found
	for _, file := range slices.Sorted(maps.Keys(s.documents)) {
		all = append(all, s.documents[file].parts()...)
	}
	var b bytes.Buffer
	b.WriteString("globalThis.searchIndex = ")
	if err := json.NewEncoder(&b).Encode(all); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// parts returns the sections of a page, and its rows with names.
func (d *document) parts() (all []found) {
	page := htmlPath(d.path)
	section := found{Title: d.title, Heading: d.title, URL: page}
	var text strings.Builder
	end := func() {
		section.Text = strings.Join(strings.Fields(text.String()), " ")
		all = append(all, section)
		text.Reset()
	}
	for n := d.tree.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level > 1 {
				end()
				section = found{Title: d.title, Heading: plain(n, d.source), URL: page + "#" + idOf(n)}
			}
		case *east.Table:
			for row := n.FirstChild(); row != nil; row = row.NextSibling() {
				words := plain(row, d.source)
				if id := idOf(row); id != "" {
					all = append(all, found{Title: d.title, Heading: id, URL: page + "#" + id, Text: words})
				} else {
					text.WriteString(words + " ")
				}
			}
		default:
			text.WriteString(plain(n, d.source) + " ")
		}
	}
	end()
	return all
}

// idOf returns the name by which a link leads to a heading or a row.
func idOf(n ast.Node) string {
	id, _ := n.AttributeString("id")
	text, _ := id.([]byte)
	return string(text)
}

// nameRows names the rows whose first cell is a single word of code: keys, metrics, codes.
func (d *document) nameRows() {
	_ = ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		row, ok := n.(*east.TableRow)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		cell := row.FirstChild()
		if cell == nil || cell.ChildCount() != 1 || cell.FirstChild().Kind() != ast.KindCodeSpan {
			return ast.WalkSkipChildren, nil
		}
		name := plain(cell, d.source)
		if name == "" || strings.ContainsAny(name, " \"<>&") || d.anchors[name] {
			return ast.WalkSkipChildren, nil
		}
		d.anchors[name] = true
		row.SetAttributeString("id", []byte(name))
		return ast.WalkSkipChildren, nil
	})
}

// A heading is a line of a page's contents.
type heading struct {
	Level     int
	ID, Title string
}

// contents returns the headings of a page, those of the third level only in a page with few.
func (d *document) contents() (all []heading) {
	for n := d.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && (h.Level == 2 || h.Level == 3) {
			all = append(all, heading{h.Level, idOf(h), plain(h, d.source)})
		}
	}
	if len(all) > 40 {
		all = slices.DeleteFunc(all, func(h heading) bool { return h.Level > 2 })
	}
	if len(all) < 3 {
		return nil
	}
	return all
}
