package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Headers are HTTP headers, a line "Name: value" for each, and never shown.
type Headers string

// UnmarshalText takes lines; empty ones are ignored.
func (h *Headers) UnmarshalText(text []byte) error {
	seen := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		switch key := strings.ToLower(name); {
		case !found, name == "", strings.ContainsFunc(name, isNoNameRune):
			return errors.New(`must have a header in each line, such as "Authorization: Bearer …"`)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return errors.New("must have printable ASCII in the values of headers")
		case seen[key]:
			return errors.New("must have each header once")
		default:
			seen[key] = true
		}
	}
	*h = Headers(text)
	return nil
}

// isNoNameRune reports whether a header's name cannot contain r.
func isNoNameRune(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// Map returns the values by the names.
func (h Headers) Map() map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(string(h)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			m[name] = strings.TrimSpace(value)
		}
	}
	return m
}

// String masks the headers; empty ones are shown as such.
func (h Headers) String() string { return Secret(h).String() }

// GoString masks the headers for %#v.
func (h Headers) GoString() string { return fmt.Sprintf("%q", h.String()) }

// LogValue masks the headers in logs.
func (h Headers) LogValue() slog.Value { return slog.StringValue(h.String()) }

// MarshalText masks the headers in JSON and the like.
func (h Headers) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// checkReceiver takes the URL of a receiver of traces.
func checkReceiver(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "":
		return errors.New("must be an address such as https://collector.example.com:4318")
	case u.User != nil:
		return errors.New("must have no credentials before the host: tracing.headers has them")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("must have neither a query (?) nor a fragment (#)")
	}
	return nil
}

// findTracingConflicts complains of headers that have nowhere to go, or that others could read on
// the way.
func (c *Config) findTracingConflicts(t *table) {
	t.conflict(c.Tracing.Headers != "" && c.Tracing.Endpoint == "", "tracing.headers", "tracing.endpoint", "there is no receiver to send them to")
	t.conflict(c.Tracing.Headers != "" && HookURL(c.Tracing.Endpoint).Plain(), "tracing.endpoint", "tracing.headers",
		"http:// to another machine can be read on the way: use https://")
}
