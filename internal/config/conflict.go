package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// leastTick is the shortest mongodb.tick.
const leastTick = 10 * time.Millisecond

// findConflicts complains of values that are fine alone and cannot work together.
func (c *Config) findConflicts(t *table) {
	backend := c.Reliability.Checkpoint.Backend
	t.conflict(c.MongoDB.Prefetch > c.MongoDB.RingSize, "mongodb.prefetch", "mongodb.ring_size",
		"what is fetched ahead must fit in the ring")
	t.conflict(c.Cluster.HeartbeatInterval > c.Cluster.LeaseTTL, "cluster.heartbeat_interval", "cluster.lease_ttl",
		"a node must report its health at least once per lease")
	t.conflict(c.Cluster.RoundFloor > c.Cluster.RebalanceDebounce, "cluster.round_floor", "cluster.rebalance_debounce",
		"the shortest pause cannot be longer than the longest one")
	t.conflict(c.MongoDB.Tick > 0 && c.MongoDB.Tick < leastTick, "mongodb.tick", "mongodb.max_await",
		"shards report their time when max_await is over: asking them more often than every 10ms only costs writes")
	t.conflict(backend == BackendEtcd && len(c.Etcd.Endpoints) == 0, "reliability.checkpoint.backend", "etcd.endpoints",
		"checkpoints in etcd need an endpoint")
	ours := func(namespace string) bool {
		return strings.HasPrefix(namespace, c.Reliability.Checkpoint.Database+".")
	}
	t.conflict(slices.ContainsFunc(c.MongoDB.Watch, ours), "mongodb.watch", "reliability.checkpoint.database",
		"the database of the checkpoints is never read: every checkpoint would be a change")
	t.conflict((c.Etcd.Username == "") != (c.Etcd.Password == ""), "etcd.username", "etcd.password", "they go together")
	t.conflict((c.Etcd.TLS.CertFile == "") != (c.Etcd.TLS.KeyFile == ""), "etcd.tls.cert_file", "etcd.tls.key_file",
		"they go together")
	t.conflict(c.MongoDB.HeadRoomCritical > c.MongoDB.HeadRoomWarning, "mongodb.head_room_critical", "mongodb.head_room_warning",
		"a warning comes before")
	plain := slices.ContainsFunc(c.Etcd.Endpoints, func(e string) bool { return strings.HasPrefix(e, "http://") })
	t.conflict(plain && c.Etcd.TLS.CAFile != "", "etcd.endpoints", "etcd.tls.ca_file", "http:// is without TLS")
	t.conflict(plain && c.Etcd.TLS.CertFile != "", "etcd.endpoints", "etcd.tls.cert_file", "http:// is without TLS")
	hook := c.Notices.Webhook
	t.conflict((hook.URL == "") != (hook.Secret == ""), "notices.webhook.url", "notices.webhook.secret", "they go together: receivers must know who writes")
	t.conflict(hook.URL.Plain() && !hook.Insecure, "notices.webhook.url", "notices.webhook.insecure",
		"http:// to another machine can be read on the way: use https://, or say that you want it")
	t.conflict(c.Supervisor.LivezAfter < c.Supervisor.StallAfter, "supervisor.livez_after", "supervisor.stall_after",
		"a process is not replaced before its component counts as stalled")
	c.findTracingConflicts(t)
	c.findAccessConflicts(t)
	c.findSinkConflicts(t)
	c.refuseFutureStarts(t, time.Now())
	c.findLocked(t)
}

// The hard limits of the supervisor. Beyond them failures would be hidden.
const (
	maxInterval = 300 * time.Second
	maxMisses   = 10
)

// findLocked complains of settings that may not be changed, or not so far.
func (c *Config) findLocked(t *table) {
	lock := func(violated bool, path, format string, args ...any) {
		if violated && !t.refused[path] {
			t.refused[path] = true
			t.complain(fault.ParameterLocked, cmp.Or(t.origin[path], byDefault), path+" "+format, args...)
		}
	}
	lock(!c.Supervisor.PageOnFailure, "supervisor.page_on_failure", "is locked: every component that is down is paged")
	lock(c.Supervisor.HeartbeatInterval > maxInterval, "supervisor.heartbeat_interval", "must be at most %s", formatDuration(maxInterval))
	lock(c.Supervisor.MissedHeartbeatsToAlert > maxMisses, "supervisor.missed_heartbeats_to_alert", "must be at most %d", maxMisses)
}

// findAccessConflicts complains of certificates, tokens and authorities that do not go together.
func (c *Config) findAccessConflicts(t *table) {
	nobodyListed := c.Access.IdentitiesFile == "" && c.Access.JWKSFile == ""
	for i, tls := range []ServerTLS{c.HTTP.TLS, c.GRPC.TLS} {
		path := []string{"http.tls.", "grpc.tls."}[i]
		t.conflict((tls.CertFile == "") != (tls.KeyFile == ""), path+"cert_file", path+"key_file", "they go together")
		t.conflict(tls.ClientCAFile != "" && tls.CertFile == "", path+"client_ca_file", path+"cert_file",
			"clients' certificates can be asked for over TLS only")
		t.conflict(tls.ClientOptional && tls.ClientCAFile == "", path+"client_optional", path+"client_ca_file",
			"certificates that are optional come from some authority")
		t.conflict(tls.ClientOptional && nobodyListed, path+"client_optional", "access.identities_file",
			"whoever comes without a certificate must show something else")
	}
	t.conflict(c.Access.JWKSFile != "" && c.Access.Issuer == "", "access.jwks_file", "access.issuer", "tokens made by others would do")
	t.conflict(c.Access.JWKSFile != "" && len(c.Access.Audiences) == 0, "access.jwks_file", "access.audiences",
		"tokens made for other services would do")
	t.conflict(c.Access.JWKSFile == "" && c.Access.Issuer != "", "access.issuer", "access.jwks_file", "there is no key to prove it")
	t.conflict(c.Access.JWKSFile == "" && len(c.Access.Audiences) > 0, "access.audiences", "access.jwks_file", "there is no key to prove them")
}
