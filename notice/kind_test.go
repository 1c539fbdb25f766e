package notice_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mongostream/streamer/notice"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/notices.md anew")

const (
	document   = "../docs/notices.md"
	tableBegin = "<!-- table: written by go generate ./notice -->\n"
	tableEnd   = "<!-- end -->\n"
)

func TestKindsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("| channel | kind | severity | is | fields | tells that |\n|---|---|---|---|---|---|\n")
	for _, r := range notice.Table() {
		levels := make([]string, len(r.Levels))
		for i, l := range r.Levels {
			levels[i] = string(l)
		}
		is := "event"
		if r.States() {
			is = "problem"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | `%s` | %s |\n", r.Channel, r.Kind, strings.Join(levels, ", "), is, strings.Join(r.Fields, "`, `"), r.Tells)
	}
	b.WriteString("\nEvents that are more than information, and why they are not problems:\n\n| kind | because |\n|---|---|\n")
	for _, r := range notice.Table() {
		if r.Alone != "" {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Kind, r.Alone)
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	table, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", document)
	}
	if *rewrite {
		if err := os.WriteFile(document, []byte(before+tableBegin+b.String()+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != b.String() {
		t.Errorf("%s has another table than the code: go generate ./notice", document)
	}
}

func TestTableNamesEachKindOnce(t *testing.T) {
	seen := map[string]bool{}
	channels := []notice.Channel{notice.Health, notice.Resync, notice.Breaker, notice.Degradation, notice.Audit}
	for _, r := range notice.Table() {
		if seen[r.Kind] || !slices.Contains(channels, r.Channel) || len(r.Levels) == 0 || len(r.Fields) == 0 || r.Tells == "" {
			t.Errorf("%+v", r)
		}
		seen[r.Kind] = true
	}
}

// What lasts is a problem, and what happened is an event. An event is information, because what is
// wrong is told by the problem, unless the table says why no problem tells it.
func TestEventsThatAreUrgentHaveAReason(t *testing.T) {
	for _, r := range notice.Table() {
		urgent := slices.ContainsFunc(r.Levels, func(l notice.Severity) bool { return l != notice.Info })
		if why := r.Alone != ""; why != (urgent && !r.States()) {
			t.Errorf("%s: severities %v, problem %t, reason %q", r.Kind, r.Levels, r.States(), r.Alone)
		}
	}
}

// Whoever posts a notice posts one of the table: the tree's sources are looked at, because a kind
// that nobody has written down would come up at night.
func TestEveryNoticeInTheTreeIsInTheTable(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..", d.IsDir() && (d.Name() == "client" || d.Name() == "testdata"):
			return fs.SkipDir // what gateways' client calls a notice is another thing
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil //nolint:nilerr // somebody is writing it: the compiler will say so
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, posted := range posts(n) {
				found[posted.Kind]++
				if err := check(posted); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{notice.KindResync, notice.KindRewound, notice.KindBreakerOpened} {
		if found[kind] == 0 {
			t.Errorf("the notice %q is posted by a part of the tree, and this test has not seen it", kind)
		}
	}
}

// A posting is what a source says of a notice: fields only where the literal names them itself.
type posting struct {
	notice.Notice

	partly bool // Channel, Level or Fields are set elsewhere
}

func check(p posting) error {
	if !p.partly {
		return notice.Check(p.Notice)
	}
	if !slices.ContainsFunc(notice.Table(), func(r notice.Rule) bool { return r.Kind == p.Kind }) {
		return fmt.Errorf("there is no kind %q", p.Kind)
	}
	return nil
}

// posts finds notices: literals of notice.Notice with their kind, and kinds that are given to one
// later.
func posts(n ast.Node) []posting {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if s, ok := n.Type.(*ast.SelectorExpr); !ok || s.Sel.Name != "Notice" || text(s.X) != "notice" {
			return nil
		}
		p := posting{Notice: notice.Notice{Text: "said"}}
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				p.take(text(kv.Key), kv.Value)
			}
		}
		p.partly = p.partly || p.Channel == "" || p.Level == "" || p.Fields == nil
		if p.Kind != "" {
			return []posting{p}
		}
	case *ast.AssignStmt:
		for i, l := range n.Lhs {
			s, ok := l.(*ast.SelectorExpr)
			if kind := kindOf(rhs(n, i)); ok && s.Sel.Name == "Kind" && kind != "" && text(s.X) == "n" {
				return []posting{{Notice: notice.Notice{Kind: kind}, partly: true}}
			}
		}
	}
	return nil
}

func rhs(a *ast.AssignStmt, i int) ast.Expr {
	if i < len(a.Rhs) {
		return a.Rhs[i]
	}
	return nil
}

func (p *posting) take(key string, value ast.Expr) {
	switch key {
	case "Kind":
		p.Kind = kindOf(value)
	case "Channel":
		p.Channel = map[string]notice.Channel{
			"notice.Health": notice.Health, "notice.Resync": notice.Resync, "notice.Breaker": notice.Breaker, "notice.Degradation": notice.Degradation,
			"notice.Audit": notice.Audit,
		}[text(value)]
	case "Level":
		p.Level = map[string]notice.Severity{"notice.Info": notice.Info, "notice.Warning": notice.Warning, "notice.Critical": notice.Critical}[text(value)]
	case "Fields":
		fields, ok := value.(*ast.CompositeLit)
		if !ok {
			return
		}
		p.Fields = map[string]any{}
		for _, e := range fields.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				p.Fields[literal(kv.Key)] = true
			}
		}
	}
}

// kindOf returns the kind that an expression is: a text, or one of the table's constants.
func kindOf(e ast.Expr) string {
	if said := literal(e); said != "" {
		return said
	}
	name, ours := strings.CutPrefix(text(e), "notice.Kind")
	if !ours || name == "" {
		return ""
	}
	for _, r := range notice.Table() {
		if strings.EqualFold(strings.ReplaceAll(r.Kind, "_", ""), name) {
			return r.Kind
		}
	}
	return "Kind" + name
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		said, _ := strconv.Unquote(l.Value)
		return said
	}
	return ""
}

func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}

func TestNoticesAreHeldToTheTable(t *testing.T) {
	good := func() notice.Notice {
		return notice.Notice{
			Channel: notice.Degradation, Kind: notice.KindRecovered, Level: notice.Info, Text: "node-1 is well again",
			Fields: map[string]any{"member": "node-1", "member_kind": "node", "was_degraded_seconds": 7, "more": true},
		}
	}
	if err := notice.Check(good()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*notice.Notice){
		"kind":     func(n *notice.Notice) { n.Kind = "better" },
		"channel":  func(n *notice.Notice) { n.Channel = notice.Health },
		"severity": func(n *notice.Notice) { n.Level = notice.Critical },
		"field":    func(n *notice.Notice) { delete(n.Fields, "member") },
		"text":     func(n *notice.Notice) { n.Text = "" },
	} {
		n := good()
		spoil(&n)
		if notice.Check(n) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
