package access

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/mongostream/streamer/fault"
)

// Config configures access. The zero value accepts every client, without TLS.
type Config struct {
	TLS TLSConfig
	// Identities is a file of token hashes and certificate subjects with their rights; see
	// docs/access.md. Optional.
	Identities string
	// Apart says that the servers ask for client certificates of different authorities: a listed
	// subject counts at the server that its line names, GRPC where it names none, so that no
	// authority can vouch for the identities of another.
	Apart bool
	// JWKS is a file of public keys (RFC 7517) that sign JWTs. Optional; without it JWTs are
	// rejected.
	JWKS string
	// Issuer is the required iss of JWTs. Required with JWKS.
	Issuer string
	// Audiences are the accepted aud values of JWTs. Required with JWKS.
	Audiences []string
	// Leeway is the tolerated clock difference to the issuer. Defaults to 30 s, at most 5 min.
	Leeway time.Duration
	// Recheck is the interval at which the rights of open connections are checked. Defaults to 30
	// s.
	Recheck time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// TLSConfig names the files of a server's certificate. The zero value means no TLS.
type TLSConfig struct {
	// Certificate and Key are PEM files: the chain with the leaf first, and its private key. Empty
	// means no TLS.
	Certificate, Key string
	// ClientCA is a PEM file of CAs for client certificates. Empty means that clients need no
	// certificate.
	ClientCA string
	// ClientOptional also accepts clients without a certificate, for example with a token. Defaults
	// to false.
	ClientOptional bool
}

// Enabled reports whether TLS is configured.
func (c TLSConfig) Enabled() bool { return c.Certificate != "" }

const maxLeeway = 5 * time.Minute

// Validate returns all errors in c, joined. It reads no files.
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
