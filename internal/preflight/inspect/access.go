package inspect

import (
	"context"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/preflight"
)

// doors are the checks of who may connect to the node, as far as its files tell.
func (s *survey) doors() []preflight.Check {
	http, grpc := s.at.Config.HTTP, s.at.Config.GRPC
	return []preflight.Check{
		{Name: "http", Code: fault.AccessBadCertificate, Find: func(context.Context) (preflight.Finding, error) {
			return server(http.Listen, http.TLS, http.Insecure)
		}},
		{Name: "grpc", Code: fault.AccessBadCertificate, Find: func(context.Context) (preflight.Finding, error) {
			return server(grpc.Listen, grpc.TLS, grpc.Insecure)
		}},
		{Name: "identities", Code: fault.AccessBadFile, Find: s.identities},
		{Name: "jwks", Code: fault.AccessBadFile, Find: s.signers},
	}
}

// server looks at the files of one server.
func server(address string, files config.ServerTLS, insecure bool) (f preflight.Finding, err error) {
	if address == "" {
		return preflight.Certificate(preflight.Server{}, time.Now()), nil
	}
	cfg := access.Config{TLS: certificates(files)}
	if err := access.CheckListen(address, cfg.TLS.Enabled(), insecure); err != nil {
		return f, err
	}
	found, err := access.NewTLS(cfg)
	if err != nil {
		return f, err
	}
	s := preflight.Server{Address: address, Clients: cfg.TLS.ClientCA != ""}
	if found != nil {
		s.Expires = found.Expires()
	}
	return preflight.Certificate(s, time.Now()), nil
}

// identities reads the list of who may connect. Certificates' subjects may stand in it where one of the servers asks for certificates.
func (s *survey) identities(context.Context) (f preflight.Finding, err error) {
	cfg := s.at.Config
	asks := cfg.GRPC.TLS
	if asks.ClientCAFile == "" {
		asks = cfg.HTTP.TLS
	}
	list, err := access.New(access.Config{TLS: certificates(asks), Identities: cfg.Access.IdentitiesFile})
	if err != nil {
		return f, err
	}
	tokens, subjects, _ := list.Known()
	return preflight.Identities(tokens, subjects, cfg.Access.JWKSFile != "", asks.ClientCAFile != ""), nil
}

// signers reads the keys that may sign JWTs.
func (s *survey) signers(context.Context) (f preflight.Finding, err error) {
	cfg := s.at.Config.Access
	jwts, err := access.New(access.Config{JWKS: cfg.JWKSFile, Issuer: cfg.Issuer, Audiences: cfg.Audiences})
	if err != nil {
		return f, err
	}
	_, _, keys := jwts.Known()
	return preflight.Signers(keys), nil
}

func certificates(t config.ServerTLS) access.TLSConfig {
	return access.TLSConfig{Certificate: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile, ClientOptional: t.ClientOptional}
}
