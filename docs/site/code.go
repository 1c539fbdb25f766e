package main

import (
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// codeBlocks renders fenced blocks of code with chroma's classes, whose colours are in style.css.
type codeBlocks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (codeBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		block := n.(*ast.FencedCodeBlock)
		_, _ = w.WriteString("<pre><code>")
		if err := writeCode(w, string(block.Language(source)), string(block.Lines().Value(source))); err != nil {
			return ast.WalkStop, err
		}
		_, _ = w.WriteString("</code></pre>\n")
		return ast.WalkContinue, nil
	})
}

// writeCode writes a text in a language. A text without a language that chroma knows has no
// colours.
func writeCode(w util.BufWriter, language, text string) error {
	switch language {
	case "cel": // chroma does not know it; its literals and operators are those of JavaScript
		language = "javascript"
	case "":
		language = "text"
	}
	lexer := lexers.Get(language)
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, strings.TrimRight(text, "\n")+"\n")
	if err != nil {
		return err
	}
	return html.New(html.WithClasses(true), html.PreventSurroundingPre(true)).Format(w, styles.Fallback, tokens)
}
