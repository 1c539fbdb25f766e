package config

import (
	"cmp"
	_ "embed" // the file of Initial
	"os"
)

// A Setting is a key with the value in force. A secret is masked.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// From is where the value is from: file:line, the name of a variable, or "default".
	From string `json:"from"`
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
	_, t, err := parseTable(path, text, environ, os.ReadFile)
	if err != nil {
		return nil, err
	}
	var all []Setting
	for key, value := range t.all() {
		all = append(all, Setting{Key: key, Value: value, From: cmp.Or(t.origin[key], byNobody)})
	}
	return all, nil
}

// Initial is a configuration to begin with: the keys that people set first, with their defaults and
// what they mean. It is generated from config.yaml.
//
//go:embed initial.yaml
var Initial string
