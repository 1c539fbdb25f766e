package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A TLS is a server's certificate and, for mTLS, the client CAs. It is reloaded when the files
// change; open connections are not affected.
type TLS struct {
	files *watchedFiles[*tls.Config]
}

// NewTLS reads the files of cfg.TLS. It returns nil if cfg has no certificate.
func NewTLS(cfg Config) (*TLS, error) {
	if err := cfg.Validate(); err != nil || !cfg.TLS.Enabled() {
		return nil, err
	}
	paths := []string{cfg.TLS.Certificate, cfg.TLS.Key}
	if cfg.TLS.ClientCA != "" {
		paths = append(paths, cfg.TLS.ClientCA)
	}
	parse := func(contents [][]byte) (*tls.Config, error) { return serverConfig(contents, cfg.TLS.ClientOptional) }
	f, err := openFiles(fault.AccessBadCertificate, cfg.withDefaults().Logger, parse, paths...)
	if err != nil {
		return nil, err
	}
	return &TLS{files: f}, nil
}

// A Handshaker is a connection that gets the progress of its TLS handshake: the client has begun
// it, and the client's certificate, if one is requested, was accepted.
type Handshaker interface {
	HandshakeBegun()
	HandshakeAccepted()
}

// Config returns a server configuration for ALPN protocols: "h2" for gRPC, "h2" and "http/1.1" for
// HTTP. It calls connections that are Handshakers.
func (t *TLS) Config(protocols ...string) *tls.Config {
	protocols = slices.Clone(protocols)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c := t.files.Get().Clone()
			c.NextProtos = protocols
			if conn, ok := hello.Conn.(Handshaker); ok {
				conn.HandshakeBegun()
				c.VerifyConnection = func(tls.ConnectionState) error {
					conn.HandshakeAccepted()
					return nil
				}
			}
			return c, nil
		},
	}
}

// Err returns why changed files are not in force, or that the certificate has expired, or nil.
func (t *TLS) Err() error {
	if err := t.files.Err(); err != nil {
		return err
	}
	if expires := t.Expires(); time.Now().After(expires) {
		return fault.Newf(fault.AccessBadCertificate, "the certificate expired at %s", expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// Expires returns the expiry of the certificate in force.
func (t *TLS) Expires() time.Time { return t.files.Get().Certificates[0].Leaf.NotAfter }

// serverConfig builds the configuration from the certificate, the key and, optionally, the client
// CAs.
func serverConfig(contents [][]byte, clientOptional bool) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("the certificate expired at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return nil, fmt.Errorf("the certificate is not valid before %s", pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		// A resumed session would skip the check of the client certificate, and subscribers connect
		// once for hours.
		SessionTicketsDisabled: true,
	}
	if len(contents) < 3 {
		return c, nil
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
		return nil, errors.New("the client CA file contains no certificate")
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if clientOptional {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// subject returns the subject of a verified client certificate in RFC 2253 form, and its expiry; ""
// if there is none. It is parsed from the raw certificate, because crypto/x509 keeps only one of
// several common names.
func subject(state *tls.ConnectionState) (name string, expires time.Time, err error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", time.Time{}, nil
	}
	leaf := state.VerifiedChains[0][0]
	var rdns pkix.RDNSequence
	if rest, err := asn1.Unmarshal(leaf.RawSubject, &rdns); err != nil || len(rest) > 0 {
		return "", time.Time{}, errors.New("the client certificate's subject cannot be read")
	}
	return rdns.String(), leaf.NotAfter, nil
}
