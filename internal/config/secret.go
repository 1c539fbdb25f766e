package config

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// mask stands for what is not shown.
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

// UnmarshalText takes a connection string; the driver knows the rest of its form.
func (u *URI) UnmarshalText(text []byte) error {
	_, rest, _ := strings.Cut(string(text), "://")
	if rest == "" || !strings.HasPrefix(string(text), "mongodb://") && !strings.HasPrefix(string(text), "mongodb+srv://") {
		return errors.New("a connection string begins with mongodb:// or mongodb+srv:// and names a host")
	}
	*u = URI(text)
	return nil
}

// String returns the connection string with its credentials masked: everything before the last @, because a password may
// stand there unescaped, and the options that carry secrets.
func (u URI) String() string {
	scheme, rest, found := strings.Cut(string(u), "://")
	if !found {
		return Secret(u).String()
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = mask + rest[at:]
	}
	hosts, query, found := strings.Cut(rest, "?")
	if !found {
		return scheme + "://" + hosts
	}
	options := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, option := range options {
		if name, _, _ := strings.Cut(option, "="); carriesSecret(name) {
			options[i] = name + "=" + mask
		}
	}
	return scheme + "://" + hosts + "?" + strings.Join(options, "&")
}

// carriesSecret reports whether an option of a connection string holds a secret, such as tlsCertificateKeyFilePassword or
// the session token among authMechanismProperties.
func carriesSecret(option string) bool {
	option = strings.ToLower(option)
	return strings.Contains(option, "password") || option == "authmechanismproperties"
}

// GoString masks the credentials for %#v.
func (u URI) GoString() string { return fmt.Sprintf("%q", u.String()) }

// LogValue masks the credentials in logs.
func (u URI) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText masks the credentials in JSON and the like.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
