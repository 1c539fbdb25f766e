package config

import (
	"fmt"
	"log/slog"

	"github.com/mongostream/streamer/internal/mongodb/uri"
)

// mask replaces secrets in output.
const mask = "***"

// A Secret is a text that is never shown; string(s) is the text itself.
type Secret string

// UnmarshalText takes any text.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// String masks the secret; an empty one is shown as such.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString masks the secret for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// LogValue masks the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText masks the secret in JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A URI is a MongoDB connection string, shown without its credentials; string(u) is the whole.
type URI string

// UnmarshalText takes a connection string that is valid, and good for a node.
func (u *URI) UnmarshalText(text []byte) error {
	if _, err := uri.Parse(string(text)); err != nil {
		return err
	}
	*u = URI(text)
	return nil
}

// String returns the connection string without its secrets; nothing of one that is not valid.
func (u URI) String() string {
	read, err := uri.Parse(string(u))
	if err != nil {
		return Secret(u).String()
	}
	return read.String()
}

// GoString masks the credentials for %#v.
func (u URI) GoString() string { return fmt.Sprintf("%q", u.String()) }

// LogValue masks the credentials in logs.
func (u URI) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText masks the credentials in JSON and the like.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
