package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/mongostream/streamer/fault"
)

// file takes the settings of a YAML file; name is how complaints call it.
func (t *table) file(name string, data []byte) {
	r := fileReader{table: t, name: name, sections: map[string]bool{}, lines: map[string]int{}, seen: map[string]string{}}
	r.learn(t.keys)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return // nothing but comments
	case err != nil:
		r.unreadable(data, err)
		return
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		t.complain(fault.ConfigUnreadable, r.at(&second), "a second document begins here; put all keys into one")
	case !errors.Is(err, io.EOF):
		r.unreadable(data, err)
	}
	for _, root := range document.Content {
		r.section("", root)
	}
}

// A fileReader applies the keys in the tree of a file.
type fileReader struct {
	*table
	name     string
	sections map[string]bool
	lines    map[string]int // the line of each key and section in the file
	seen     map[string]string
}

// learn notes the sections of keys.
func (r *fileReader) learn(keys []key) {
	for _, k := range keys {
		for i, c := range k.path {
			if c == '.' {
				r.sections[k.path[:i]] = true
			}
		}
	}
}

// items reads a list of sections.
func (r *fileReader) items(path string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.complain(fault.ConfigBadValue, r.at(n), "%s must be a list, each item with keys", path)
		return
	}
	before := len(r.keys)
	r.lengthen(path, len(n.Content))
	r.learn(r.keys[before:])
	for i, item := range n.Content {
		r.origin[fmt.Sprintf("%s[%d]", path, i)] = r.at(item)
		r.section(fmt.Sprintf("%s[%d]", path, i), item)
	}
}

// at returns the file and line of a node.
func (r *fileReader) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.name, n.Line) }

// unreadable complains of YAML that cannot be read, with the line that the parser's message names.
// An alias without its anchor has none, and may be a secret that begins with a star: it is looked
// up and not repeated.
func (r *fileReader) unreadable(data []byte, err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if name, found := strings.CutPrefix(text, "unknown anchor '"); found {
		before, _, _ := bytes.Cut(data, []byte("*"+strings.TrimSuffix(name, "' referenced")))
		line = 1 + bytes.Count(before, []byte("\n"))
		text = "a value that begins with * must be quoted"
	} else if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	r.complain(fault.ConfigUnreadable, fmt.Sprintf("%s:%d", r.name, line), "not YAML: %s", text)
}

// section reads the keys of a section; path is "" for the whole file.
func (r *fileReader) section(path string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a section whose keys are all comments
	}
	if n.Kind != yaml.MappingNode {
		r.complain(fault.ConfigBadValue, r.at(n), "%s must have keys, each with its value", cmp.Or(path, "the file"))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, v := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			r.complain(fault.ConfigBadValue, r.at(name), "a key must be a word")
			continue
		}
		child := strings.TrimPrefix(path+"."+name.Value, ".")
		if first, twice := r.lines[child]; twice {
			r.complain(fault.ConfigConflict, r.at(name), "%s stands twice, first at line %d", child, first)
			continue
		}
		r.lines[child] = name.Line
		r.entry(child, name, v)
	}
}

// entry reads one key or section.
func (r *fileReader) entry(path string, name, v *yaml.Node) {
	if r.sections[path] {
		r.section(path, v)
		return
	}
	if _, list := r.lists[path]; list {
		r.items(path, v)
		return
	}
	known := slices.Concat(slices.Collect(maps.Keys(r.sections)), slices.Collect(maps.Keys(r.lists)))
	for _, k := range r.keys {
		if k.path == path {
			if v, ok := r.value(k, v); ok {
				r.apply(r.seen, k, v)
			}
			return
		}
		known = append(known, k.path)
	}
	r.complain(fault.ConfigUnknownKey, r.at(name), "there is no key %q%s", path, Suggestion(path, known))
}

// value reads the value of a key.
func (r *fileReader) value(k key, n *yaml.Node) (value, bool) {
	v := value{where: r.at(n), file: r.name}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		r.refuse(k, v.where, errors.New(`has no value: write one ("" for an empty text, [] for an empty list) or remove the key`))
	case n.Kind == yaml.ScalarNode:
		v.text = n.Value
		return v, true
	case n.Kind == yaml.SequenceNode:
		v.isList = true
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				r.refuse(k, r.at(item), errors.New("an item of the list must be a text"))
				return v, false
			}
			v.items = append(v.items, value{where: r.at(item), text: item.Value})
		}
		return v, true
	case n.Kind == yaml.AliasNode:
		r.refuse(k, v.where, errors.New("aliases are not followed: write the value itself"))
	default:
		r.refuse(k, v.where, errors.New("takes a value, not keys"))
	}
	return v, false
}
