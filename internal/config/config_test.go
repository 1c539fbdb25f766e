package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gopkg.in/yaml.v3"

	"github.com/mongostream/streamer/fault"
)

// noFile is a file system without files.
func noFile(path string) ([]byte, error) { return nil, fmt.Errorf("open %s: %w", path, os.ErrNotExist) }

func TestDefaultsAreThoseOfTheDesign(t *testing.T) {
	got, err := Load("", []string{"STREAMER_NODE_ID=n1", "HOME=/root", "STREAMER_TEST_MONGODB_URI=x"})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Cluster: Cluster{ID: "streamer", Partitions: 64, LeaseTTL: 10 * time.Second, ExpectedNodes: 1, SettleTime: 10 * time.Second, Rebalance: time.Minute, RebalanceFloor: 10, RebalanceCooldown: time.Hour,
			HeartbeatInterval: 2 * time.Second, RoundFloor: 50 * time.Millisecond, RebalanceDebounce: time.Second,
			Resync:            Resync{Debounce: 5 * time.Second, RateLimit: 10},
			AssignmentCircuit: AssignmentCircuit{FailureThreshold: 3, HalfOpenTimeout: 30 * time.Second, SuccessThreshold: 2}},
		Node: Node{ID: "n1", Capacity: 1}, OnHistoryLost: "resync",
		Retention: Retention{Interval: 5 * time.Minute, MaxAge: 168 * time.Hour, MaxBytes: 100 << 30},
		Rescan:    Rescan{PageSize: 2000, Rate: 1000},
		MongoDB: MongoDB{
			URI: "mongodb://127.0.0.1:27017/?replicaSet=rs0", FullDocument: "default", FullDocumentBeforeChange: "off", MaxStreams: 5,
			RingSize: 48 << 20, Prefetch: 16 << 20, ServerSelectionTimeout: 30 * time.Second,
			HeadRoomWarning: time.Hour, HeadRoomCritical: 15 * time.Minute, Outage: time.Hour,
		},
		Etcd:    Etcd{Endpoints: []string{"127.0.0.1:2379"}, Prefix: "/streamer", DialTimeout: 5 * time.Second},
		HTTP:    HTTP{Listen: "127.0.0.1:8080", Heartbeat: 15 * time.Second, StallTimeout: 30 * time.Second, MaxClients: 1000, Compression: "none"},
		GRPC:    GRPC{Listen: "127.0.0.1:9090", HeartbeatTimeout: 30 * time.Second, StallTimeout: 30 * time.Second},
		Handoff: Handoff{Overlap: time.Second},
		Gateway: Gateway{
			CreditEvents: 65536, CreditBytes: 16 << 20, QueueBytes: 256 << 20, AckTimeout: 10 * time.Minute, MaxSessions: 1000, MaxSubscriptions: 10_000,
			MaxFilterBytes: 64 << 20, SubscribeRate: 200, SubscribeBurst: 10_000,
		},
		Notices: Notices{Keep: 1000, TTL: 24 * time.Hour, Webhook: Webhook{
			Severity: "info", Timeout: 5 * time.Second, Attempts: 8, Window: time.Minute, Burst: 10, Queue: 100,
		}},
		Supervisor: Supervisor{
			HeartbeatInterval: 30 * time.Second, MissedHeartbeatsToAlert: 3, AutoRestart: true, PageOnFailure: true, StallAfter: 10 * time.Second,
			LivezAfter: 3 * time.Minute, RestartBudget: 3, RestartWindow: 10 * time.Minute, ReportRetention: 720 * time.Hour,
		},
		Access:  Access{Leeway: 30 * time.Second, Recheck: 30 * time.Second, Share: 50, StartsPerSecond: 20},
		Log:     Log{Level: slog.LevelInfo, Format: "text"},
		Debug:   Debug{DumpMax: 10, LagThreshold: 30 * time.Second, StallThreshold: 30 * time.Second},
		Tracing: Tracing{Ratio: 0.01},
		Reliability: Reliability{
			Checkpoint:     Checkpoint{Backend: BackendEtcd, Database: "streamer", Interval: 5 * time.Second, EventCount: 1000, MinInterval: 100 * time.Millisecond, MaxUnsaved: 1_000_000, IdentityRate: 64 << 10},
			Dedup:          Dedup{Enabled: true, CacheSize: 10000, TTL: 3 * time.Minute},
			GapDetection:   GapDetection{Enabled: true, MaxGap: 5 * time.Minute},
			CircuitBreaker: CircuitBreaker{Threshold: 5, Timeout: 30 * time.Second},
			LagThreshold:   30 * time.Second,
			Shutdown:       Shutdown{DrainTimeout: 30 * time.Second, FlushTimeout: 10 * time.Second, CheckpointTimeout: 5 * time.Second},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfigYAMLHasEveryKeyWithItsDefault(t *testing.T) {
	const path = "../../config.yaml"
	defaults, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults, shown); diff != "" {
		t.Errorf("not the defaults:\n%s", diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for path := range newTable(&shown).all() {
		section, last := tree, path
		for name, rest, found := strings.Cut(path, "."); found; name, rest, found = strings.Cut(rest, ".") {
			section, _ = section[name].(map[string]any)
			last = rest
		}
		if _, found := section[last]; !found {
			t.Errorf("config.yaml lacks %s", path)
		}
	}
	for _, key := range []string{"uri_file:", "password_file:"} {
		if !bytes.Contains(text, []byte(key)) {
			t.Errorf("config.yaml does not mention %s", key)
		}
	}
}

func TestNodeIsNamedAfterItsHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Load("", nil); c.Node.ID != host || err != nil {
		t.Errorf("node.id %q on host %q, %v", c.Node.ID, host, err)
	}
}

func TestEveryFormRefusesWhatIsNotOfIt(t *testing.T) {
	tests := []struct {
		key        string
		good, bads []string
	}{
		{"CLUSTER_ID", []string{"a", "shop-1.eu_west"}, []string{"", "a/b", "a b", "ü", strings.Repeat("x", 254)}},
		{"CLUSTER_PARTITIONS", []string{"1", "16384"}, []string{"0", "16385", "-1", "x", "0x10", "64.0", ""}},
		{"TRACING_RATIO", []string{"0", "1", "0.25"}, []string{"1.1", "-0.1", "NaN", "0x1", "1e-2", "x", ""}},
		{
			"TRACING_ENDPOINT", []string{"", "http://127.0.0.1:4318", "https://collector.example.com/v1/traces"},
			[]string{"collector:4318", "grpc://c:4317", "https://", "https://u:p@c", "https://c?a=b", "https://c#a"},
		},
		{"TRACING_HEADERS", []string{""}, []string{"hush", "A B: c", ": c", "A: ü", "A: b\na: c"}},
		{"CLUSTER_LEASE_TTL", []string{"2s", "1m30s"}, []string{"1999ms", "2", "-5s", "2h", ""}},
		{"START_FROM", []string{"now", "beginning-of-oplog", "2026-01-31T12:00:00Z"}, []string{"later", "1969-01-01T00:00:00Z", "2200-01-01T00:00:00Z", ""}},
		{"MONGODB_URI", []string{"mongodb://h", "mongodb+srv://h.x/"}, []string{"h:27017", "http://h", "mongodb://", ""}},
		{"MONGODB_WATCH", []string{"", "a.b", "a.b.c,d.*"}, []string{"a", "a.", ".b", "a.b*", "*.b", "a.b,a.b", "local.x", "config.*", "a.system.views", "a.b,"}},
		{"MONGODB_OPERATIONS", []string{"", "insert,delete"}, []string{"drop", "insert,insert", "Insert"}},
		{"MONGODB_FULL_DOCUMENT", []string{"updateLookup", "required"}, []string{"", "yes"}},
		{"MONGODB_MAX_STREAMS", []string{"2"}, []string{"1"}},
		{"MONGODB_RING_SIZE", []string{"16MiB", "1GiB", "20480KiB"}, []string{"1023KiB", "48MB", "48", "1.5GiB", "-1MiB", "9999999999TiB", "MiB"}},
		{"ON_HISTORY_LOST", []string{"halt"}, []string{"", "ignore"}},
		{"RESCAN_COLLECTIONS", []string{"", "a.b", "a.b,a.c.d"}, []string{"a", "a.*", "a.b,a.b"}},
		{"ETCD_ENDPOINTS", []string{"h:1", "https://h:2379,[::1]:2379"}, []string{"", "h", ":2379", "h:0", "h:x", "ftp://h:1", "http://h:1/x", "h:65536"}},
		{"ETCD_PREFIX", []string{"/a", "/a/b"}, []string{"", "/", "a", "/a/"}},
		{"RELIABILITY_CHECKPOINT_DATABASE", []string{"x"}, []string{"", "admin", "a.b", "a b", "a$"}},
		{"HTTP_LISTEN", []string{":8080", "127.0.0.1:0", "[::]:80"}, []string{"", "8080", "h:70000"}},
		{"HTTP_CORS_ORIGINS", []string{"", "https://app.example.com,http://localhost:3000"}, []string{"*", "app.example.com", "https://", "https://*.example.com", "https://a.b/", "https://u@a.b", "ftp://a.b"}},
		{"HTTP_TLS_CLIENT_OPTIONAL", []string{"false"}, []string{"", "yes"}},
		{"MONGODB_FULL_DOCUMENT_BEFORE_CHANGE", []string{"off", "whenAvailable", "required"}, []string{"", "true", "default"}},
		{"ACCESS_LEEWAY", []string{"1m"}, []string{"0s", "6m", ""}},
		{"ACCESS_RECHECK", []string{"1s"}, []string{"999ms", "2h", ""}},
		{"DEBUG_LISTEN", []string{"", "127.0.0.1:0", "localhost:6060", "[::1]:6060"}, []string{":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:1", "example.org:1", "127.0.0.1", "127.0.0.1:x"}},
		{"DEBUG_DUMP_MAX", []string{"1"}, []string{"0", ""}},
		{"NOTICES_KEEP", []string{"10"}, []string{"9", "10001", ""}},
		{"NOTICES_TTL", []string{"1m"}, []string{"59s", "0s", ""}},
		{"NOTICES_WEBHOOK_URL", []string{""}, []string{"h", "ftp://h", "https://", "https://u:p@h/", "https://h/#x", "//h", "https://h:x/", "http://%"}},
		{"NOTICES_WEBHOOK_SECRET", []string{""}, []string{"short", strings.Repeat("x", 15)}},
		{"NOTICES_WEBHOOK_SEVERITY", []string{"critical"}, []string{"", "error"}},
		{"LOG_LEVEL", []string{"debug", "error"}, []string{"", "INFO", "trace", "info+2"}},
		{
			"RETENTION_STORE", []string{"", "file:///var/lib/x", "s3://log-1/x?region=eu-central-1"},
			[]string{"S3://log-1/x", "s3:log-1/x", "s3://x", "/var/lib/x", "file://h/x", "file:///", "ftp://h/x"},
		},
		{"RELIABILITY_DEDUP_ENABLED", []string{"true", "false"}, []string{"", "yes", "1", "True"}},
		{"RELIABILITY_CHECKPOINT_BACKEND", []string{"mongo"}, []string{"", "mongodb"}},
	}
	for _, tt := range tests {
		for _, text := range tt.good {
			if _, err := parse("", nil, []string{envPrefix + tt.key + "=" + text}, noFile); err != nil {
				t.Errorf("%s=%q is refused: %v", tt.key, text, err)
			}
		}
		for _, text := range tt.bads {
			c, err := parse("", nil, []string{envPrefix + tt.key + "=" + text}, noFile)
			if err == nil || !strings.Contains(err.Error(), envPrefix+tt.key) {
				t.Errorf("%s=%q: %v", tt.key, text, err)
			}
			if diff := cmp.Diff(Config{}, c); diff != "" {
				t.Errorf("%s=%q: a configuration beside the error: %s", tt.key, text, diff)
			}
		}
	}
}

func TestStartFromIsTyped(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]StartFrom{"now": {}, "beginning-of-oplog": {Oldest: true}, "2026-01-31T12:00:00Z": {At: at}} {
		c, err := parse("", nil, []string{"STREAMER_START_FROM=" + text}, noFile)
		if err != nil || !cmp.Equal(c.StartFrom, want) || c.StartFrom.String() != text {
			t.Errorf("%s: %+v, %s, %v", text, c.StartFrom, c.StartFrom, err)
		}
	}
}

func TestContradictionsNameBothKeysAndTheirPlaces(t *testing.T) {
	tests := []struct{ name, file, env, want string }{
		{"prefetch above the ring", "mongodb: {prefetch: 64MiB}", "", "c.yaml:1: mongodb.prefetch is 64MiB (c.yaml:1), but mongodb.ring_size is 48MiB (by default)"},
		{"two sources", "mongodb: {prefetch: 2MiB}", "MONGODB_RING_SIZE=1MiB", "mongodb.ring_size is 1MiB (STREAMER_MONGODB_RING_SIZE)"},
		{"no endpoint", "etcd: {endpoints: []}", "", "reliability.checkpoint.backend is etcd (by default), but etcd.endpoints is [] (c.yaml:1)"},
		{"user without password", "etcd: {username: u}", "", `etcd.password is "" (by default)`},
		{"password without user", "", "ETCD_PASSWORD=hush", `etcd.password is *** (STREAMER_ETCD_PASSWORD)`},
		{"certificate without key", "etcd: {tls: {cert_file: c.pem}}", "", "etcd.tls.key_file"},
		{"TLS on a plain endpoint", "etcd: {endpoints: ['http://h:1'], tls: {ca_file: ca.pem}}", "", "without TLS"},
		{"certificate on a plain endpoint", "etcd: {endpoints: ['http://h:1'], tls: {cert_file: c, key_file: k}}", "", "without TLS"},
		{"server certificate without key", "http: {tls: {cert_file: c.pem}}", "", `http.tls.cert_file is c.pem (c.yaml:1), but http.tls.key_file is "" (by default)`},
		{"server key without certificate", "", "GRPC_TLS_KEY_FILE=k", "grpc.tls.key_file is k (STREAMER_GRPC_TLS_KEY_FILE)"},
		{"clients' authority without TLS", "grpc: {tls: {client_ca_file: ca.pem}}", "", `grpc.tls.client_ca_file is ca.pem (c.yaml:1), but grpc.tls.cert_file is ""`},
		{"optional certificates of nobody", "http: {tls: {cert_file: c, key_file: k, client_optional: true}}\naccess: {identities_file: i}", "", "http.tls.client_ca_file"},
		{"optional certificates and nothing else", "grpc: {tls: {cert_file: c, key_file: k, client_ca_file: a, client_optional: true}}", "", "access.identities_file"},
		{"keys without issuer", "access: {jwks_file: k, audiences: [a]}", "", "access.issuer"},
		{"keys without audience", "access: {jwks_file: k, issuer: i}", "", "access.audiences is [] (by default)"},
		{"issuer without keys", "access: {issuer: i}", "", "access.issuer is i (c.yaml:1)"},
		{"audience without keys", "", "ACCESS_AUDIENCES=a", "access.audiences is [a] (STREAMER_ACCESS_AUDIENCES)"},
		{"webhook without a secret", "notices: {webhook: {url: 'https://h/in'}}", "", `notices.webhook.secret is "" (by default)`},
		{"secret without a webhook", "", "NOTICES_WEBHOOK_SECRET=" + strings.Repeat("x", 16), "notices.webhook.secret is *** (STREAMER_NOTICES_WEBHOOK_SECRET)"},
		{"webhook in plaintext", "notices: {webhook: {url: 'http://h:1/in', secret: 0123456789abcdef}}", "", "notices.webhook.url is http://h:1/*** (c.yaml:1), but notices.webhook.insecure is false"},
		{"headers without a receiver", "", "TRACING_HEADERS=A: hush", `tracing.headers is *** (STREAMER_TRACING_HEADERS), but tracing.endpoint is "" (by default)`},
		{"headers in plaintext", "tracing: {endpoint: 'http://h:4318', headers: 'A: hush'}", "", "tracing.endpoint is http://h:4318 (c.yaml:1), but tracing.headers is ***"},
		{"heartbeats rarer than leases end", "cluster: {heartbeat_interval: 3s, lease_ttl: 2s}", "", "cluster.heartbeat_interval is 3s (c.yaml:1), but cluster.lease_ttl is 2s"},
		{"rounds that are debounced shorter than their floor", "cluster: {round_floor: 2s}", "", "cluster.rebalance_debounce is 1s (by default)"},
		{"watching the database of checkpoints in etcd", "mongodb: {watch: [shop.orders, streamer.x]}", "", "reliability.checkpoint.database is streamer"},
		{"watching the marks", "mongodb: {watch: [streamer.*]}\nreliability: {checkpoint: {backend: mongo}}", "", "reliability.checkpoint.database is streamer"},
	}
	for _, tt := range tests {
		var environ []string
		if tt.env != "" {
			environ = append(environ, envPrefix+tt.env)
		}
		_, err := parse("c.yaml", []byte(tt.file), environ, noFile)
		if fault.Of(err) != fault.ConfigConflict || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	fine := "mongodb: {watch: [shop.orders]}\netcd: {endpoints: ['https://h:1'], tls: {ca_file: ca.pem}, username: u, password: p}\n" +
		"grpc: {tls: {cert_file: c, key_file: k, client_ca_file: a, client_optional: true}}\naccess: {jwks_file: j, issuer: i, audiences: [a]}"
	if _, err := parse("c.yaml", []byte(fine), nil, noFile); err != nil {
		t.Error(err)
	}
	for _, hook := range []string{"url: 'https://h'", "url: 'http://127.0.0.1:8/x'", "url: 'http://localhost/'", "url: 'http://[::1]:1'", "url: 'http://h', insecure: true"} {
		if _, err := parse("c.yaml", []byte("notices: {webhook: {secret: 0123456789abcdef, "+hook+"}}"), nil, noFile); err != nil {
			t.Error(err)
		}
	}
}

func TestHeadersOfTracesComeFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(path, []byte("Authorization: Bearer a:b\n\nX-Tenant:  shop \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("", []string{"STREAMER_TRACING_ENDPOINT=https://h", "STREAMER_TRACING_HEADERS_FILE=" + path})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer a:b", "X-Tenant": "shop"}
	if diff := cmp.Diff(want, c.Tracing.Headers.Map()); diff != "" {
		t.Error(diff)
	}
	if shown := fmt.Sprintf("%v %+v %#v", c.Tracing, c.Tracing, c.Tracing); strings.Contains(shown, "Bearer") {
		t.Error(shown)
	}
}

// An origin is compared literally with what browsers send: one that no browser sends is refused
// here.
func TestOriginsHaveTheFormOfBrowsers(t *testing.T) {
	of := func(origin string) error {
		_, err := parse("c.yaml", []byte("mongodb: {uri: 'mongodb://h'}"), []string{"STREAMER_HTTP_CORS_ORIGINS=" + origin}, noFile)
		return err
	}
	const app = "https://app.example.com"
	for _, origin := range []string{app, app + ":8443", "http://localhost:3000", "http://[::1]:3000", "http://app.example.com:443"} {
		if err := of(origin); err != nil {
			t.Errorf("%q: %v", origin, err)
		}
	}
	for _, origin := range []string{
		"*", "null", "app.example.com", app + "/", app + "/x", app + "?x", app + ":", app + ":443", "http://x:80", "https://", "https://:8443",
		"https://App.example.com", "HTTPS://app.example.com", "https://*.example.com", "https://u@app.example.com", "ftp://app.example.com", "https://a b",
	} {
		if err := of(origin); fault.Of(err) != fault.ConfigBadValue {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

func TestContradictionWithARefusedValueIsNotTold(t *testing.T) {
	_, err := parse("c.yaml", []byte("mongodb: {prefetch: 64MiB, ring_size: 99MB}"), nil, noFile)
	if fault.Of(err) != fault.ConfigBadValue || strings.Contains(err.Error(), "prefetch") {
		t.Error(err)
	}
}

func TestSecretsComeFromFilesAndTheLaterSourceWins(t *testing.T) {
	dir := t.TempDir()
	uri, password := filepath.Join(dir, "uri"), filepath.Join(dir, "password")
	for path, text := range map[string]string{uri: "mongodb://u:hush@h\n", password: "hush"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("mongodb: {uri_file: "+uri+"}\netcd: {username: u, password: first}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, []string{"STREAMER_ETCD_PASSWORD_FILE=" + password})
	if err != nil || c.MongoDB.URI != "mongodb://u:hush@h" || c.Etcd.Password != "hush" {
		t.Errorf("%s, %v", c, err)
	}
	if c, err = Load(file, []string{"STREAMER_MONGODB_URI=mongodb://other"}); err != nil || c.MongoDB.URI != "mongodb://other" {
		t.Errorf("%s, %v", c, err)
	}
}

func TestUnreadableFilesAreNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	if _, err := Load(missing, nil); fault.Of(err) != fault.ConfigUnreadable || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
	_, err := Load("", []string{"STREAMER_MONGODB_URI_FILE=" + missing})
	if fault.Of(err) != fault.ConfigUnreadable || !strings.Contains(err.Error(), "STREAMER_MONGODB_URI_FILE: mongodb.uri_file: open "+missing) {
		t.Error(err)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "hush"
	c, err := parse("", nil, []string{
		"STREAMER_MONGODB_URI=mongodb://user:a%40" + secret + "%2F" + secret + "@h:1/db?w=1&tlsCertificateKeyFilePassword=" + secret + "&authMechanismProperties=AWS_SESSION_TOKEN:" + secret,
		"STREAMER_ETCD_USERNAME=u", "STREAMER_ETCD_PASSWORD=" + secret,
		"STREAMER_NOTICES_WEBHOOK_URL=https://h/" + secret + "?" + secret, "STREAMER_NOTICES_WEBHOOK_SECRET=" + strings.Repeat(secret, 4),
	}, noFile)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&logged, nil))
	logger.Info("start", "config", c, "mongodb", c.MongoDB, "password", c.Etcd.Password, "uri", c.MongoDB.URI)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("start", "config", c, "etcd", c.Etcd)
	marshalled, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{c.String(), logged.String(), string(marshalled), fmt.Sprint(c.MongoDB.URI)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		shown = append(shown, fmt.Sprintf(verb, c), fmt.Sprintf(verb, c.Etcd), fmt.Sprintf(verb, c.MongoDB))
	}
	for _, text := range shown {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("shows the secret: %s", text)
		}
	}
	if want := "mongodb.uri: mongodb://***@h:1/db?w=1&tlsCertificateKeyFilePassword=***&authMechanismProperties=***\n"; !strings.Contains(c.String(), want) {
		t.Errorf("lacks %s:\n%s", want, c)
	}
	for _, bad := range []string{"MONGODB_URI=http://u:" + secret + "@h", "MONGODB_URI=mongodb://u:a@" + secret + "/@h", "MONGODB_URI=mongodb://u:" + secret, "ETCD_ENDPOINTS=http://u:" + secret + "@h:1", "NOTICES_WEBHOOK_URL=ftp://" + secret} {
		if _, err := parse("", nil, []string{envPrefix + bad}, noFile); err == nil || strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
	}
	if _, err := parse("c.yaml", []byte("\netcd:\n  password: *"+secret+"\n"), nil, noFile); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "c.yaml:3: ") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	shown, err := os.ReadFile("../../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shown, "STREAMER_MONGODB_WATCH=a.b,c.*")
	f.Add([]byte("cluster: {id: a, id: b}\nmongodb: [*x, &x y]\n? [a]\n: b\n---\n"), "STREAMER_=")
	f.Add([]byte("etcd: ~\nhttp: !!binary x\ngateway:\n\tmax_sessions: x"), "STREAMER_MONGODB_URI_FILE=x")
	open := func(path string) ([]byte, error) { return []byte(path), nil }
	f.Fuzz(func(t *testing.T, file []byte, variable string) {
		c, err := parse("c.yaml", file, []string{variable, "STREAMER_NODE_ID=n"}, open)
		if err != nil {
			if fault.Of(err) == "" {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		again, err := parse("", nil, variables(&c), open)
		if err != nil {
			t.Fatalf("right once, refused as the environment: %v", err)
		}
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("shown as something else: %s", diff)
		}
	})
}

// variables writes a configuration as an environment. A list whose items have commas cannot be
// written so; it is left out of c.
func variables(c *Config) []string {
	for _, list := range []*[]string{&c.MongoDB.Watch, &c.Etcd.Endpoints, &c.Rescan.Collections, &c.HTTP.CORSOrigins, &c.Access.Audiences} {
		if slices.ContainsFunc(*list, func(item string) bool { return strings.Contains(item, ",") || item != strings.TrimSpace(item) }) {
			*list = []string{"h.x:1"}
			if list == &c.HTTP.CORSOrigins {
				*list = nil
			}
		}
	}
	var environ []string
	for path, text := range newTable(c).all() {
		switch path {
		case "mongodb.uri":
			text = string(c.MongoDB.URI)
		case "etcd.password":
			text = string(c.Etcd.Password)
		case "mongodb.watch", "mongodb.operations", "etcd.endpoints", "rescan.collections", "http.cors_origins", "access.audiences":
			text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		}
		environ = append(environ, envPrefix+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))+"="+text)
	}
	return environ
}

// Pages are large where half a second at the rate pays for them.
func TestPagesOfSnapshotsFollowTheRate(t *testing.T) {
	t.Parallel()
	for r, want := range map[*Rescan]int{{PageSize: 2000, Rate: 1000}: 500, {PageSize: 2000, Rate: 3000}: 1500, {PageSize: 2000, Rate: 1_000_000}: 2000, {PageSize: 7, Rate: 150}: 7} {
		if got := r.Page(); got != want {
			t.Errorf("%+v: %d, want %d", r, got, want)
		}
	}
}
