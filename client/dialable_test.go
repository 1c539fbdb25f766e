package client

import (
	"context"
	"crypto/tls"
	"testing"
)

// A topology may name any address: none is dialled that the program would not have been allowed to
// name itself.
func TestTopologyLeadsNobodyWhereConfigurationWouldNot(t *testing.T) {
	token := func(context.Context) (string, error) { return "secret", nil }
	for _, tt := range []struct {
		of      string
		cfg     Config
		address string
		want    bool
	}{
		{"plaintext here", Config{}, "127.0.0.1:1", true},
		{"a token here", Config{Token: token}, "[::1]:1", true},
		{"plaintext elsewhere", Config{}, "node:1", false},
		{"plaintext that is allowed", Config{Plaintext: true}, "node:1", true},
		{"a token in plaintext", Config{Plaintext: true, Token: token}, "node:1", false},
		{"a token in plaintext, which alone is allowed", Config{TokenInPlaintext: true, Token: token}, "node:1", false},
		{"a token in plaintext that is allowed", Config{Plaintext: true, TokenInPlaintext: true, Token: token}, "node:1", true},
		{"a token over TLS", Config{TLS: &tls.Config{}, Token: token}, "node:1", true},
		{"no port", Config{TLS: &tls.Config{}}, "node", false},
	} {
		if got := tt.cfg.dialable(tt.address); got != tt.want {
			t.Errorf("%s: %t", tt.of, got)
		}
	}
}
