package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mongostream/streamer/change"
)

// A Template makes the name of a topic or subject from a message: text with {db}, {coll}, {op} and
// {partition}. If the text has {db} or {coll}, two databases or collections never share a name: an
// ambiguous name gets "--" and a hash of both at the end of {coll}, or else of {db}.
type Template struct {
	parts    []string // text and placeholders
	legal    func(string) string
	longest  int
	reserved []string
}

// Limits of a Template's names.
type Limits struct {
	// Legal replaces characters that the target does not allow in names, in the values of
	// placeholders.
	Legal func(string) string
	// Longest bounds a name in bytes; 0 means no bound.
	Longest int
	// Reserved are names with another use at the target.
	Reserved []string
}

// ParseTemplate reads a template.
func ParseTemplate(text string, limits Limits) (*Template, error) {
	t := &Template{legal: limits.Legal, longest: limits.Longest, reserved: limits.Reserved}
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
		case !slices.Contains([]string{"db", "coll", "op", "partition"}, name):
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

// hashed matches the end of names that are ambiguous without a hash.
var hashed = regexp.MustCompile(`--[0-9a-f]{16}`)

// Name returns the name for a message. Names of collections that a message lacks are "_".
func (t *Template) Name(m *Message) string {
	values := map[string]string{"{db": m.DB, "{coll": m.Coll, "{op": m.Op, "{partition": strconv.Itoa(int(m.Partition))}
	filled := make(map[string]string, len(values))
	plain := true
	for name, v := range values {
		if filled[name] = t.legal(v); v == "" {
			filled[name] = "_"
		}
		if (name == "{db" || name == "{coll") && slices.Contains(t.parts, name) {
			plain = plain && v != "_" && (v == "" || filled[name] == v)
		}
	}
	at := "{coll"
	if !t.Has("coll") {
		at = "{db"
	}
	name := t.fill(filled)
	if !t.Has("coll") && !t.Has("db") {
		return name
	}
	fits := t.longest == 0 || len(name) <= t.longest
	isFree := fits && !hashed.MatchString(name) && !slices.Contains(t.reserved, name)
	if plain && isFree && t.tells(name, filled) {
		return name
	}
	of := m.DB + "\x00" + m.Coll
	if !t.Has("db") { // the databases share names on purpose
		of = m.Coll
	}
	if !t.Has("coll") {
		of = m.DB
	}
	sum := sha256.Sum256([]byte(of))
	end := "--" + hex.EncodeToString(sum[:8])
	if over := len(name) + len(end) - t.longest; t.longest > 0 && over > 0 {
		filled[at] = filled[at][:max(0, len(filled[at])-over)]
	}
	filled[at] += end
	return t.fill(filled)
}

// fill replaces the placeholders with values.
func (t *Template) fill(values map[string]string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if v, is := values[p]; is {
			b.WriteString(v)
		} else {
			b.WriteString(p)
		}
	}
	return b.String()
}

// tells reports whether the values can be read back from a name, from the left, each placeholder up
// to the text after it. Such names differ for different values.
func (t *Template) tells(name string, values map[string]string) bool {
	for i, p := range t.parts {
		v, is := values[p]
		if !is {
			name = strings.TrimPrefix(name, p)
			continue
		}
		end := len(name)
		if i+1 < len(t.parts) {
			next := t.parts[i+1]
			if _, adjacent := values[next]; adjacent {
				return false
			}
			end = strings.Index(name, next)
		}
		if end < 0 || name[:end] != v {
			return false
		}
		name = name[end:]
	}
	return name == ""
}

// Filter returns the subject that matches all names of a partition: tokens with other placeholders
// are *.
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

// Names caches the names that a template makes. Only one goroutine may use it.
type Names struct {
	template *Template
	of       func(*Message) inputs
	known    map[inputs]string
	last     inputs // those of the last message
	lastName string // its name, empty before the first message
}

// inputs are the parts of a message that decide its name, the others are zero.
type inputs struct {
	op, db, coll string
	partition    change.Partition
}

// maxNames bounds the cached names.
const maxNames = 10_000

// NewNames returns the names of a template.
func NewNames(t *Template) *Names {
	byOp, byPartition := t.Has("op"), t.Has("partition")
	of := func(m *Message) inputs {
		i := inputs{db: m.DB, coll: m.Coll}
		if byOp {
			i.op = m.Op
		}
		if byPartition {
			i.partition = m.Partition
		}
		return i
	}
	return &Names{template: t, of: of, known: make(map[inputs]string)}
}

// Of returns the name for a message.
func (n *Names) Of(m *Message) string {
	of := n.of(m)
	if of == n.last && n.lastName != "" {
		return n.lastName
	}
	name, known := n.known[of]
	if !known {
		if len(n.known) >= maxNames {
			clear(n.known)
		}
		name = n.template.Name(m)
		n.known[of] = name
	}
	n.last = of
	n.lastName = name
	return name
}
