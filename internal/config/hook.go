package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
)

// A HookURL is the address of a webhook, shown without its path, which is often the only secret of
// one; string(u) is the whole. Empty means none.
type HookURL string

// UnmarshalText takes an address of http or https with a host, without credentials.
func (u *HookURL) UnmarshalText(text []byte) error {
	parsed, err := url.Parse(string(text))
	switch {
	case err != nil, parsed.Scheme != "https" && parsed.Scheme != "http", parsed.Hostname() == "":
		return errors.New("must be an address such as https://alerts.example.com/streamer")
	case parsed.User != nil:
		return errors.New("must have no credentials before the host: deliveries are signed")
	case parsed.Fragment != "":
		return errors.New("must not have a fragment (#), which is never sent")
	}
	*u = HookURL(text)
	return nil
}

// Plain reports whether posts go over a network without TLS.
func (u HookURL) Plain() bool {
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Scheme != "http" {
		return false
	}
	return !isHere(parsed.Hostname())
}

// String returns the address with path and query masked.
func (u HookURL) String() string {
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Host == "" {
		return Secret(u).String()
	}
	return parsed.Scheme + "://" + parsed.Host + "/" + mask
}

// GoString masks it for %#v.
func (u HookURL) GoString() string { return fmt.Sprintf("%q", u.String()) }

// LogValue masks it in logs.
func (u HookURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText masks it in JSON and the like.
func (u HookURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
