package config

import (
	"cmp"
	_ "embed" // the file of Initial
	"maps"
	"os"
)

// A Setting is a key with the value in force. A secret is masked.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// From is where the value is from: file:line, the name of a variable, or "default".
	From string `json:"from"`
	// Lacks is what must be set besides, because the key differs from its default and has no effect
	// as it is; empty where it has one.
	Lacks string `json:"lacks,omitempty"`
}

// Default reports whether no source has set the key.
func (s Setting) Default() bool { return s.From == byNobody }

// byNobody is where a value is from that no source has set.
const byNobody = "default"

// Settings returns every key of a configuration as Load reads it, those of its sinks included.
func Settings(path string, environ []string) ([]Setting, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	c, t, err := parseTable(path, text, environ, os.ReadFile)
	if err != nil {
		return nil, err
	}
	untouched := newTable(new(Config))
	untouched.forms = forms()
	untouched.setDefaults()
	defaults := maps.Collect(untouched.all())
	var all []Setting
	for key, value := range t.all() {
		s := Setting{Key: key, Value: value, From: cmp.Or(t.origin[key], byNobody)}
		if !s.Default() && value != defaults[key] {
			s.Lacks = c.lacks(key)
		}
		all = append(all, s)
	}
	return all, nil
}

// Initial is a configuration to begin with: the keys that people set first, with their defaults and
// what they mean. It is generated from config.yaml.
//
//go:embed initial.yaml
var Initial string
