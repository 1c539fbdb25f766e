package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/listen"
)

// A closure checks how well a node is protected against strangers, from its configuration and its
// files.
type closure struct {
	cfg     config.Config
	secrets map[string]string // files with secrets, each with its key
	where   map[string]string // where each key is set
	unused  []config.Setting  // keys without an effect
}

func (c closure) checks() []check {
	of := func(f finding) func(context.Context) (finding, error) {
		return func(context.Context) (finding, error) { return f, nil }
	}
	http, grpc := c.cfg.HTTP, c.cfg.GRPC
	etcd := fine("not used")
	if c.cfg.Reliability.Checkpoint.Backend == config.BackendEtcd || c.cfg.Cluster.ExpectedNodes > 1 {
		etcd = judgeLink(c.cfg.Etcd.Link(), fault.EtcdExposed)
	}
	checks := []check{
		{Name: "http", Code: fault.AccessBadCertificate, run: func(context.Context) (finding, error) {
			if err := access.CheckListen(http.ProbesListen, false, http.Insecure); http.ProbesListen != "" && err != nil {
				return finding{}, err
			}
			return server(http.Listen, http.TLS, http.Insecure)
		}},
		{Name: "grpc", Code: fault.AccessBadCertificate, run: func(context.Context) (finding, error) {
			return server(grpc.Listen, grpc.TLS, grpc.Insecure)
		}},
		{Name: "identities", Code: fault.AccessBadFile, run: c.identities},
		{Name: "jwks", Code: fault.AccessBadFile, run: c.signers},
		{Name: "secrets", Code: fault.ConfigUnreadable, run: c.exposed},
		{Name: "unused", run: of(judgeUnused(c.unused))},
		{Name: "files", run: of(judgeFiles(listen.Files(c.cfg)))},
		{Name: "mongodb_options", run: of(judgeOptions(c.cfg.MongoDB.URI.Remarks()))},
		{Name: "mongodb_link", run: of(judgeLink(c.cfg.MongoDB.URI.Link(), fault.MongoExposed))},
		{Name: "etcd_link", run: of(etcd)},
	}
	for _, collection := range c.cfg.Rescan.Collections {
		checks = append(checks, check{Name: "rescan " + collection, run: func(context.Context) (finding, error) {
			return fine("it is watched"), backend.CheckCovered(c.cfg, collection)
		}})
	}
	for i := range c.cfg.Sinks {
		checks = append(checks, check{Name: "sink " + c.cfg.Sinks[i].Name + " settings", Code: fault.SinkTarget, run: func(context.Context) (finding, error) {
			return c.sinkSettings(i)
		}})
	}
	return checks
}

// sinkSettings makes the parts of a sink, without connecting to anything.
func (c closure) sinkSettings(i int) (f finding, err error) {
	cfg := c.cfg
	sink := c.cfg.Sinks[i]
	for j := range sink.Subscriptions {
		one := sink
		one.Subscriptions = sink.Subscriptions[j : j+1]
		if _, err := backend.Subscriptions(one, cfg); err != nil {
			return f, c.complain(fmt.Sprintf("sinks[%d].subscriptions[%d].filter", i, j), err)
		}
	}
	subscriptions, err := backend.Subscriptions(sink, cfg)
	if err != nil {
		return f, err
	}
	if err := backend.CheckReach(sink); err != nil {
		return f, c.complain(fmt.Sprintf("sinks[%d].http.url", i), err)
	}
	var doubts []string
	for i, sub := range subscriptions {
		if doubt := sub.Program.Warning(); doubt != "" {
			doubts = append(doubts, fmt.Sprintf("subscription %d: %s", i+1, doubt))
		}
	}
	target, letters, err := backend.Targets(sink, cfg.Cluster.ID, cfg.Cluster.Partitions, nil)
	if err != nil {
		return f, err
	}
	target.Close()
	if letters != nil {
		letters.Close()
	}
	if len(doubts) > 0 {
		return warning(fault.FilterDoubtful, "%s", strings.Join(doubts, " ")), nil
	}
	return fine("%s, format %s", sink.Type, sink.Format), nil
}

// complain adds to an error of a sink the place where the key is set that causes it.
func (c closure) complain(key string, err error) error {
	code := fault.SinkTarget
	if own, ok := errors.AsType[*fault.Error](err); ok {
		code = own.Code
		err = own.Err
	}
	if code == fault.SessionUnwatched {
		key = strings.TrimSuffix(key, "filter") + "namespace"
	}
	where := c.where[key]
	if where == "" { // of a test, or of a sink that the command line adds
		return fault.Newf(code, "%s: %w", key, err)
	}
	return fault.New(code, &config.Complaint{Where: where, Err: fmt.Errorf("%s: %w", key, err)})
}

// here returns the checks for a machine that may lack the node's files: it skips files that are
// missing or unreadable for this user.
func (c closure) here() []check {
	checks := c.checks()
	for i := range checks {
		run := checks[i].run
		checks[i].run = func(ctx context.Context) (finding, error) {
			f, err := run(ctx)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return finding{Level: Skip, Text: "not tried here: " + err.Error()}, nil
			}
			return f, err
		}
	}
	return checks
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
	s := serverFacts{Address: address, Open: open(address), Clients: cfg.TLS.ClientCA != ""}
	if found != nil {
		s.Expires = found.Expires()
	}
	return judgeCertificate(s, time.Now()), nil
}

// open reports whether other machines reach an address.
func open(address string) bool {
	return address != "" && access.CheckListen(address, false, false) != nil
}

// identities reads the list of identities. It may contain subjects of certificates if one of the
// servers requires certificates.
func (c closure) identities(context.Context) (f finding, err error) {
	asks := c.cfg.GRPC.TLS
	if asks.ClientCAFile == "" {
		asks = c.cfg.HTTP.TLS
	}
	found := identitiesFacts{JWTs: c.cfg.Access.JWKSFile != "", Certificates: asks.ClientCAFile != ""}
	if c.cfg.Access.IdentitiesFile == "" && !found.JWTs {
		if http := c.cfg.HTTP; open(http.Listen) && http.TLS.ClientCAFile == "" {
			found.Open = append(found.Open, "HTTP at "+http.Listen)
		}
		if grpc := c.cfg.GRPC; open(grpc.Listen) && grpc.TLS.ClientCAFile == "" {
			found.Open = append(found.Open, "gRPC at "+grpc.Listen)
		}
		return judgeIdentities(found), nil
	}
	list, err := access.New(access.Config{TLS: certificates(asks), Identities: c.cfg.Access.IdentitiesFile, Apart: listen.Apart(c.cfg)})
	if err != nil {
		return f, err
	}
	found.Tokens, found.Subjects, _ = list.Known()
	found.Unlimited = list.Unlimited()
	return judgeIdentities(found), nil
}

// signers reads the keys that may sign JWTs.
func (c closure) signers(context.Context) (f finding, err error) {
	cfg := c.cfg.Access
	jwts, err := access.New(access.Config{JWKS: cfg.JWKSFile, Issuer: cfg.Issuer, Audiences: cfg.Audiences})
	if err != nil {
		return f, err
	}
	_, _, keys := jwts.Known()
	return judgeSigningKeys(keys), nil
}

// exposed looks for files with secrets that every user of this machine may read.
func (c closure) exposed(context.Context) (f finding, err error) {
	var exposed []string
	for _, path := range slices.Sorted(maps.Keys(c.secrets)) {
		info, err := os.Stat(path)
		if err != nil {
			return f, fmt.Errorf("look at the file of %s: %w", c.secrets[path], err)
		}
		if info.Mode()&0o004 != 0 {
			exposed = append(exposed, path+" ("+c.secrets[path]+")")
		}
	}
	return judgeSecrets(len(c.secrets), exposed), nil
}

func certificates(t config.ServerTLS) access.TLSConfig {
	return access.TLSConfig{Certificate: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile, ClientOptional: t.ClientOptional}
}
