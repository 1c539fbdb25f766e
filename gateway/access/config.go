package access

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/mongostream/streamer/fault"
)

// Config says who may connect. The zero value lets in everybody, without TLS.
type Config struct {
	TLS TLSConfig
	// Identities is a file of tokens (as hashes) and certificate subjects with what each may do; docs/access.md has its form. Defaults to none.
	Identities string
	// JWKS is a file of public keys (RFC 7517) that sign JWTs. Defaults to none: no JWT is taken.
	JWKS string
	// Issuer is what a JWT's iss must be. Must be set with JWKS.
	Issuer string
	// Audiences are those of which a JWT's aud must hold one. Must be set with JWKS.
	Audiences []string
	// Leeway is how far the issuer's clock may be off. Defaults to 30 s, at most 5 min.
	Leeway time.Duration
	// Recheck is how often a connection's right to be there is looked at again. Defaults to 30 s.
	Recheck time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// TLSConfig names the files of a server's certificate. The zero value means no TLS.
type TLSConfig struct {
	// Certificate and Key are PEM files: the chain with the leaf first, and its private key. Default to none: no TLS.
	Certificate, Key string
	// ClientCA is a PEM file of the authorities that clients' certificates must come from. Defaults to none: clients need no certificate.
	ClientCA string
	// ClientOptional lets in clients without a certificate too, for those that have a token. Defaults to false: with ClientCA set
	// every client must have one.
	ClientOptional bool
}

// Enabled reports whether there is TLS.
func (c TLSConfig) Enabled() bool { return c.Certificate != "" }

const maxLeeway = 5 * time.Minute

// Validate returns everything that is wrong with c, without looking at any file.
func (c Config) Validate() error {
	var errs []error
	conflict := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, fault.New(fault.ConfigConflict, errors.New(text)))
		}
	}
	value := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, fault.New(fault.ConfigBadValue, errors.New(text)))
		}
	}
	conflict((c.TLS.Certificate == "") != (c.TLS.Key == ""), "a certificate needs its key, and a key its certificate")
	conflict(c.TLS.ClientCA != "" && !c.TLS.Enabled(), "clients' certificates can be asked for over TLS only: a server certificate is missing")
	conflict(c.TLS.ClientOptional && c.TLS.ClientCA == "", "clients' certificates are optional but have no authority to come from")
	conflict(c.JWKS != "" && c.Issuer == "", "a JWKS file needs the issuer of its tokens, or tokens made for others would do")
	conflict(c.JWKS != "" && len(c.Audiences) == 0, "a JWKS file needs the audiences of its tokens, or tokens made for other services would do")
	conflict(c.JWKS == "" && (c.Issuer != "" || len(c.Audiences) > 0), "an issuer or an audience is given, but no JWKS file")
	value(c.Leeway < 0 || c.Leeway > maxLeeway, "the leeway must be between 0 and 5m")
	value(c.Recheck < 0, "the time between rechecks must not be negative")
	for _, a := range c.Audiences {
		value(a == "", "an audience is empty")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Leeway = cmp.Or(c.Leeway, 30*time.Second)
	c.Recheck = cmp.Or(c.Recheck, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
