package config

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// envPrefix begins the names of the variables that are ours.
const envPrefix = "STREAMER_"

// Load reads the file at path, or none where path is "", and environ (as os.Environ returns it)
// over the defaults. The error joins a fault.Error for everything that is wrong; with one, the
// Config is zero.
func Load(path string, environ []string) (Config, error) {
	file, err := readConfig(path)
	if err != nil {
		return Config{}, err
	}
	return parse(path, file, environ, os.ReadFile)
}

// readConfig reads the file at path, or none where path is "".
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Newf(fault.ConfigUnreadable, "read configuration: %w", err)
	}
	return file, nil
}

// parse is Load without the file system: open reads the files of secrets.
func parse(name string, file []byte, environ []string, open func(string) ([]byte, error)) (Config, error) {
	c, _, err := parseTable(name, file, environ, open)
	return c, err
}

// parseTable is parse that also says where the values are from.
func parseTable(name string, file []byte, environ []string, open func(string) ([]byte, error)) (Config, *table, error) {
	var c Config
	t := newTable(&c)
	t.forms = forms()
	t.open = open
	t.setDefaults()
	t.file(name, file)
	t.environ(envPrefix, environ)
	if c.Node.ID == "" {
		if err := c.Node.takeHostname(); err != nil {
			t.refuseValue("node.id", err)
		}
	}
	c.findConflicts(t)
	if err := t.err(); err != nil {
		return Config{}, nil, err
	}
	return c, t, nil
}

// takeHostname names the node after its host.
func (n *Node) takeHostname() error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("set it, because the host's name is unknown: %w", err)
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("set it, because the host's name %q cannot be used: %w", name, err)
	}
	n.ID = name
	return nil
}

// String lists every key with the value in force, one a line; secrets are masked.
func (c Config) String() string {
	var b strings.Builder
	for path, text := range newTable(&c).all() {
		fmt.Fprintf(&b, "%s: %s\n", path, text)
	}
	return b.String()
}

// LogValue is a group of every key with the value in force; secrets are masked.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	for path, text := range newTable(&c).all() {
		attrs = append(attrs, slog.String(path, text))
	}
	return slog.GroupValue(attrs...)
}
