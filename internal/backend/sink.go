package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/file"
	"github.com/mongostream/streamer/sink/http"
	"github.com/mongostream/streamer/sink/kafka"
	"github.com/mongostream/streamer/sink/nats"
)

// Targets returns the target of a sink and its dead-letter target, nil if there is none. They
// connect at their first use; a target of type stdout writes to the given output. The cluster and
// its number of partitions are part of the names of their external state. Errors are faults.
func Targets(s config.Sink, cluster string, partitions int, stdout *file.Output) (changes, letters sink.Target, err error) {
	if changes, err = target(s, cluster, partitions, stdout); err != nil || s.DeadLetter == "" {
		return changes, nil, err
	}
	s.Kafka.Topic = s.DeadLetter
	s.Kafka.Transactional = false
	s.Kafka.Tombstones = false
	s.NATS.Subject = s.DeadLetter
	s.NATS.Fence = false
	s.NATS.Stream = ""
	s.File.Path = s.DeadLetter
	if s.Type == config.SinkHTTP || s.Type == config.SinkStdout {
		s.Type = config.SinkFile
	}
	letters, err = target(s, cluster, partitions, nil)
	return changes, letters, err
}

func target(s config.Sink, cluster string, partitions int, stdout *file.Output) (target sink.Target, err error) {
	format := sink.Format(s.Format)
	switch s.Type {
	case config.SinkKafka:
		k := s.Kafka
		cfg := kafka.Config{
			Brokers: k.Brokers, Topic: k.Topic, Losses: s.Losses, Transactional: k.Transactional,
			ID:     fmt.Sprintf("streamer.%s.%s.%d", cluster, s.Name, partitions),
			Create: k.CreateTopics, Compression: k.Compression, Tombstones: k.Tombstones, Mechanism: k.Mechanism, User: k.Username,
			Password: string(k.Password), Timeout: k.Timeout, Format: format, Reserved: reserved(s),
			MaxMessageBytes: int(k.MaxMessageBytes),
		}
		cfg.OneDatabase, cfg.OneCollection = one(s.Subscriptions)
		for _, sub := range s.Subscriptions {
			if db, coll, _ := strings.Cut(sub.Namespace, "."); coll != "" && coll != "*" {
				cfg.Namespaces = append(cfg.Namespaces, change.Namespace{DB: db, Coll: coll})
			}
		}
		if cfg.TLS, err = tlsOf(k.TLS); err == nil {
			target, err = kafka.New(cfg)
		}
	case config.SinkNATS:
		n := s.NATS
		cfg := nats.Config{
			URL: n.URL, Subject: n.Subject, Losses: s.Losses, Stream: n.Stream, Fence: n.Fence, CredentialsFile: n.CredentialsFile, Token: string(n.Token),
			User: n.Username, Password: string(n.Password), AckTimeout: n.AckTimeout, Format: format, Reserved: reserved(s), Name: "streamer " + cluster + " " + s.Name,
			Source: cluster + "/" + s.Name,
		}
		if cfg.TLS, err = tlsOf(n.TLS); err == nil {
			target, err = nats.New(cfg)
		}
	case config.SinkHTTP:
		h := s.HTTP
		cfg := http.Config{
			URL: string(h.URL), Secret: string(h.Secret), Batch: h.Batch, Parallel: h.Parallel, Timeout: h.Timeout, Format: format, Allow: networks(h.Allow),
		}
		if cfg.TLS, err = tlsOf(h.TLS); err == nil {
			target = http.New(cfg)
		}
	case config.SinkFile:
		target = file.New(file.Config{Path: s.File.Path, MaxSize: s.File.MaxSize, Keep: s.File.Keep})
	case config.SinkStdout:
		target = stdout.Target()
	default:
		err = fmt.Errorf("unknown type %q", s.Type)
	}
	if err != nil {
		return nil, fault.Newf(fault.SinkTarget, "sink %s: %w", s.Name, err)
	}
	return target, nil
}

// CheckReach reports of a sink whose target is written as an address whether the node may dial it.
func CheckReach(s config.Sink) error {
	if s.Type != config.SinkHTTP {
		return nil
	}
	return http.CheckLiteral(string(s.HTTP.URL), networks(s.HTTP.Allow))
}

// networks reads the networks of a configuration that was checked.
func networks(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text).Masked())
	}
	return all
}

// reserved returns the topics or subjects that changes must not use.
func reserved(s config.Sink) []string {
	if s.DeadLetter == "" {
		return nil
	}
	return []string{s.DeadLetter}
}

// one reports whether all subscriptions name one database, and one collection.
func one(subscriptions []config.SinkSubscription) (database, collection bool) {
	databases, collections := make(map[string]bool), make(map[string]bool)
	for _, sub := range subscriptions {
		db, coll, _ := strings.Cut(sub.Namespace, ".")
		databases[db], collections[coll] = true, true
	}
	return len(databases) == 1 && !databases[""], len(collections) == 1 && !collections[""] && !collections["*"]
}

// AckTimeout returns how long the target of a sink may take to report an outcome, 0 for the
// default. Standard output has no bound, because its reader may pause for any time.
func AckTimeout(s config.Sink) time.Duration {
	if s.Type == config.SinkStdout {
		return math.MaxInt64 / 2 // with room for additions
	}
	timeout := map[string]time.Duration{config.SinkKafka: s.Kafka.Timeout, config.SinkNATS: s.NATS.AckTimeout, config.SinkHTTP: s.HTTP.Timeout}[s.Type]
	return 2 * timeout // it may connect or wait first
}

// Carries returns the optional contents of the log's events.
func Carries(cfg config.Config) match.Carries {
	return match.Carries{
		Document: cfg.MongoDB.FullDocument != "default", LookedUp: cfg.MongoDB.FullDocument == "updateLookup", Before: cfg.MongoDB.FullDocumentBeforeChange != "off", Without: match.OpsOf(Watch(cfg).Without()...),
	}
}

// CheckCovered returns an error for a namespace (db.coll, db.*, empty for all) that the
// configuration does not read.
func CheckCovered(cfg config.Config, namespace string) error {
	if ns := Namespace(namespace); !Watch(cfg).Covers(ns) {
		return fault.Newf(fault.SessionUnwatched, "nothing is read of %q: add it to mongodb.watch", namespace)
	}
	return nil
}

// Namespace parses a namespace of the configuration. Its Coll is empty for a whole database.
func Namespace(text string) change.Namespace {
	db, coll, _ := strings.Cut(text, ".")
	if coll == "*" {
		coll = ""
	}
	return change.Namespace{DB: db, Coll: coll}
}

// Subscriptions compiles the subscriptions of a sink. Its errors are faults.
func Subscriptions(s config.Sink, cfg config.Config) ([]delivery.Subscription, error) {
	if len(s.Subscriptions) == 0 {
		s.Subscriptions = []config.SinkSubscription{{}}
	}
	var all []delivery.Subscription
	for i, sub := range s.Subscriptions {
		if err := CheckCovered(cfg, sub.Namespace); err != nil {
			return nil, fmt.Errorf("sink %s, subscription %d: %w", s.Name, i+1, err)
		}
		ns := Namespace(sub.Namespace)
		filter := match.Filter{DB: ns.DB, Coll: ns.Coll, Source: sub.Filter, Carries: Carries(cfg)}
		for _, name := range sub.Operations {
			op, _ := change.ParseOp(name) // the configuration was checked
			filter.Ops = append(filter.Ops, op)
		}
		program, err := match.Compile(filter)
		if err != nil {
			return nil, fmt.Errorf("sink %s, subscription %d: %w", s.Name, i+1, err)
		}
		all = append(all, delivery.Subscription{ID: strconv.Itoa(i), Program: program, Form: delivery.Form{Format: delivery.BSON}})
	}
	return all, nil
}

// Served returns the names of sinks, each with a hash of its subscriptions. If two nodes gave one
// sink different subscriptions, one would move the other's checkpoints past changes that it does
// not publish. Nodes of all versions compare the hashes, so the hashed text is built field by
// field: a later version may add a new field only when it differs from its default.
func Served(sinks []config.Sink) (served []string) {
	for _, s := range sinks {
		hash := fnv.New64a()
		forms := make([]string, len(s.Subscriptions))
		for i, sub := range s.Subscriptions {
			forms[i] = fmt.Sprintf("{%q %q %q}", sub.Namespace, sub.Operations, sub.Filter)
		}
		_, _ = io.WriteString(hash, "["+strings.Join(forms, " ")+"]") // cannot fail
		served = append(served, fmt.Sprintf("%s#%x", s.Name, hash.Sum64()))
	}
	return served
}

// tlsOf returns the TLS settings of connections to a target, nil without TLS. Each connection reads
// the certificate files again.
func tlsOf(c config.SinkTLS) (*tls.Config, error) {
	if !c.Used() {
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file has no certificate in PEM")
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read cert_file and key_file: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return t, nil
}
