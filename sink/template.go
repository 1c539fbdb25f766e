package sink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mongostream/streamer/change"
)

// A Template makes the name of a topic or subject from a message: text with {db}, {coll}, {op} and {partition}.
type Template struct {
	parts []string // text and placeholders
	legal func(string) string
}

// ParseTemplate reads a template. legal replaces what names of the target may not contain, in what is filled in.
func ParseTemplate(text string, legal func(string) string) (*Template, error) {
	t := &Template{legal: legal}
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		if before != "" {
			t.parts = append(t.parts, before)
		}
		if !found {
			break
		}
		name, behind, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return nil, fmt.Errorf("%q has a { without }", text)
		case name != "db" && name != "coll" && name != "op" && name != "partition":
			return nil, fmt.Errorf("%q has {%s}: there are {db}, {coll}, {op} and {partition}", text, name)
		}
		t.parts = append(t.parts, "{"+name)
		rest = behind
	}
	return t, nil
}

// Has reports whether the template has a placeholder.
func (t *Template) Has(name string) bool {
	return slices.Contains(t.parts, "{"+name)
}

// Name returns the name for a message. Names of collections that a message lacks are "_".
func (t *Template) Name(m *Message) string {
	var b strings.Builder
	for _, p := range t.parts {
		switch p {
		case "{db":
			b.WriteString(t.fill(m.DB))
		case "{coll":
			b.WriteString(t.fill(m.Coll))
		case "{op":
			b.WriteString(t.fill(m.Op))
		case "{partition":
			b.WriteString(strconv.Itoa(int(m.Partition)))
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

func (t *Template) fill(s string) string {
	if s == "" {
		return "_"
	}
	return t.legal(s)
}

// Filter returns the subject that matches all names of a partition: tokens with other placeholders are *.
func (t *Template) Filter(p change.Partition) string {
	text := strings.Join(t.parts, "\x00")
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		token = strings.ReplaceAll(token, "{partition", strconv.Itoa(int(p)))
		if strings.Contains(token, "{") {
			token = "*"
		}
		tokens[i] = strings.ReplaceAll(token, "\x00", "")
	}
	return strings.Join(tokens, ".")
}

// Names are those that a template makes, kept for the messages that need the same. They are used by one goroutine.
type Names struct {
	template *Template
	known    map[inputs]string
}

// inputs are what a name depends on.
type inputs struct {
	op, db, coll string
	partition    change.Partition
}

// maxNames bounds what recurs and is kept.
const maxNames = 10_000

// NewNames returns the names of a template.
func NewNames(t *Template) *Names { return &Names{template: t, known: make(map[inputs]string)} }

// Of returns the name for a message.
func (n *Names) Of(m *Message) string {
	of := inputs{op: m.Op, db: m.DB, coll: m.Coll, partition: m.Partition}
	name, known := n.known[of]
	if !known {
		if len(n.known) >= maxNames {
			clear(n.known)
		}
		name = n.template.Name(m)
		n.known[of] = name
	}
	return name
}
