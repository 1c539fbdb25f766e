package preflight

import (
	"context"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/listen"
)

// accessChecks are the checks of who may connect to the node, as far as its files tell.
func (s *inspector) accessChecks() []check {
	http, grpc := s.conn.Config.HTTP, s.conn.Config.GRPC
	return []check{
		{Name: "http", Code: fault.AccessBadCertificate, run: func(context.Context) (finding, error) {
			return server(http.Listen, http.TLS, http.Insecure)
		}},
		{Name: "grpc", Code: fault.AccessBadCertificate, run: func(context.Context) (finding, error) {
			return server(grpc.Listen, grpc.TLS, grpc.Insecure)
		}},
		{Name: "identities", Code: fault.AccessBadFile, run: s.identities},
		{Name: "jwks", Code: fault.AccessBadFile, run: s.signers},
	}
}

// server looks at the files of one server.
func server(address string, files config.ServerTLS, insecure bool) (f finding, err error) {
	if address == "" {
		return judgeCertificate(serverFacts{}, time.Now()), nil
	}
	cfg := access.Config{TLS: certificates(files)}
	if err := access.CheckListen(address, cfg.TLS.Enabled(), insecure); err != nil {
		return f, err
	}
	found, err := access.NewTLS(cfg)
	if err != nil {
		return f, err
	}
	s := serverFacts{Address: address, Clients: cfg.TLS.ClientCA != ""}
	if found != nil {
		s.Expires = found.Expires()
	}
	return judgeCertificate(s, time.Now()), nil
}

// identities reads the list of who may connect. Certificates' subjects may stand in it where one of the servers asks for certificates.
func (s *inspector) identities(context.Context) (f finding, err error) {
	cfg := s.conn.Config
	asks := cfg.GRPC.TLS
	if asks.ClientCAFile == "" {
		asks = cfg.HTTP.TLS
	}
	list, err := access.New(access.Config{TLS: certificates(asks), Identities: cfg.Access.IdentitiesFile, Apart: listen.Apart(cfg)})
	if err != nil {
		return f, err
	}
	tokens, subjects, _ := list.Known()
	return judgeIdentities(tokens, subjects, cfg.Access.JWKSFile != "", asks.ClientCAFile != ""), nil
}

// signers reads the keys that may sign JWTs.
func (s *inspector) signers(context.Context) (f finding, err error) {
	cfg := s.conn.Config.Access
	jwts, err := access.New(access.Config{JWKS: cfg.JWKSFile, Issuer: cfg.Issuer, Audiences: cfg.Audiences})
	if err != nil {
		return f, err
	}
	_, _, keys := jwts.Known()
	return judgeSigningKeys(keys), nil
}

func certificates(t config.ServerTLS) access.TLSConfig {
	return access.TLSConfig{Certificate: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile, ClientOptional: t.ClientOptional}
}
