package config

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/configuration.md anew")

const reference = "../../docs/reference/configuration.md"

// TestKeysAreDocumented compares docs/reference/configuration.md with config.yaml, which another
// test compares with the code.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var shown Config
	page := page{variables: map[string]string{}}
	for _, k := range newTable(&shown).keys {
		page.variables[k.path] = k.variable("STREAMER_")
	}
	page.WriteString(`<!-- Generated from config.yaml by go generate ./internal/config. Do not edit. -->

# Configuration

Every key with its default. A variable of the environment overrides the file (` + "`streamer run -f config.yaml`" + `). Unknown keys and variables are refused.
Durations have a unit (500ms, 10s, 1h30m), sizes too (64KiB, 1GiB); lists in variables are separated by commas.
` + "`streamer config check -f config.yaml`" + ` validates a file without connecting to anything; ` + "`streamer config show`" + ` says which values are in force, and where each
is from; ` + "`streamer config init`" + ` writes a file with the keys that people set first:

`)
	for _, path := range essentials() {
		fmt.Fprintf(&page, "- `%s`\n", path)
	}
	page.WriteString("\n")
	page.section("", document.Content[0])
	page.sinks()
	initial := "# A configuration to begin with; all other keys are at their defaults.\n# All keys: https://github.com/mongostream/streamer/blob/main/docs/reference/configuration.md\n" +
		essential("", document.Content[0])
	if *rewrite {
		if err := os.WriteFile("initial.yaml", []byte(initial), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(reference, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(reference); err != nil || !bytes.Equal(got, page.Bytes()) {
		t.Errorf("%s is not what config.yaml says: go generate ./internal/config (%v)", reference, err)
	}
	if !*rewrite && Initial != initial { // what is embedded is from before it was rewritten
		t.Error("initial.yaml is not what config.yaml says: go generate ./internal/config")
	}
	if page.rows < 100 {
		t.Errorf("only %d keys", page.rows)
	}
}

// A page is a document with a table of the keys of each section.
type page struct {
	bytes.Buffer

	variables map[string]string // by the path of a key
	rows      int
}

// section writes the keys of a section, and after them the sections below it.
func (p *page) section(path string, node *yaml.Node) {
	var below []int
	begun := false
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case value.Kind == yaml.MappingNode:
			below = append(below, i)
			continue
		case p.variables[path+key.Value] == "": // a list of sections, as sinks
			continue
		}
		if !begun {
			p.WriteString("| key | default | variable | meaning |\n|---|---|---|---|\n")
			begun = true
		}
		p.rows++
		meaning := cmp.Or(prose(key.HeadComment), "see above")
		fmt.Fprintf(p, "| `%s` | %s | `%s` | %s |\n", path+key.Value, standing(value), p.variables[path+key.Value], meaning)
	}
	if begun {
		p.WriteString("\n")
	}
	for _, i := range below {
		key, value := node.Content[i], node.Content[i+1]
		fmt.Fprintf(p, "## %s\n\n", path+key.Value)
		if comment := prose(key.HeadComment); comment != "" {
			p.WriteString(comment + "\n\n")
		}
		p.section(path+key.Value+".", value)
	}
}

// sinks writes the keys of a sink.
func (p *page) sinks() {
	p.WriteString("## sinks\n\nEach item of the list has these keys; [sinks](../sinks.md) says what they mean. Variables count the sinks from 0.\n\n")
	p.WriteString("| key | default | form | variable |\n|---|---|---|---|\n")
	sinks := struct {
		Sinks []Sink `key:"sinks"`
	}{[]Sink{{Subscriptions: []SinkSubscription{{}}}}}
	for _, k := range newTable(&sinks).keys {
		standing := cmp.Or(k.tag.Get("default"), "empty")
		if k.indirect {
			standing = "empty"
		}
		if standing != "empty" {
			standing = "`" + standing + "`"
		}
		form := cmp.Or(strings.Join(strings.Fields(k.tag.Get("one")), ", "), k.tag.Get("range"), map[string]string{
			"broker": "host:port", "name": "letters, digits, dots, hyphens", "namespace": "db.coll or db.*", "nats": "nats://host:port", "network": "a network, such as 10.0.0.0/8",
			"signing": "at least 16 bytes",
		}[k.tag.Get("check")])
		if k.indirect {
			form = "a file that holds it"
		}
		p.rows++
		fmt.Fprintf(p, "| `%s` | %s | %s | `%s` |\n", strings.ReplaceAll(k.path, "[0]", "[]"), standing, form, k.variable("STREAMER_"))
	}
}

// essential writes the keys that people set first, with their comments, as YAML.
func essential(path string, node *yaml.Node) string {
	var b strings.Builder
	indent := strings.Repeat("  ", strings.Count(path, "."))
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		below := ""
		switch {
		case value.Kind == yaml.MappingNode:
			if below = essential(path+key.Value+".", value); below == "" {
				continue
			}
			below = "\n" + below
		case !slices.Contains(essentials(), path+key.Value):
			continue
		default:
			below = " " + asWritten(value) + "\n"
		}
		if path == "" {
			b.WriteString("\n")
		}
		for line := range strings.Lines(key.HeadComment) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintf(&b, "%s%s\n", indent, line)
			}
		}
		fmt.Fprintf(&b, "%s%s:%s", indent, key.Value, below)
	}
	return b.String()
}

// asWritten writes a value as it is in the file.
func asWritten(node *yaml.Node) string {
	if node.Kind != yaml.SequenceNode {
		return node.Value
	}
	items := make([]string, len(node.Content))
	for i, item := range node.Content {
		items[i] = item.Value
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// standing shows a default.
func standing(node *yaml.Node) string {
	if node.Kind == yaml.SequenceNode {
		items := make([]string, len(node.Content))
		for i, item := range node.Content {
			items[i] = item.Value
		}
		if len(items) == 0 {
			return "none"
		}
		return "`" + strings.Join(items, ",") + "`"
	}
	if node.Value == "" {
		return "empty"
	}
	return "`" + node.Value + "`"
}

// prose makes one line of a comment.
func prose(comment string) string {
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "{{", "{ {").Replace(strings.Join(words, " "))
}

// essentials are the keys that people set first, in the order of config.yaml.
func essentials() []string {
	return []string{
		"cluster.id", "cluster.partitions", "cluster.expected_nodes", "start_from", "mongodb.uri", "mongodb.watch", "mongodb.full_document",
		"etcd.endpoints", "http.listen", "grpc.listen",
	}
}
