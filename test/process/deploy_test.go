package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/config"
)

// deploy is where the samples are.
const deploy = "../../deploy"

// sample reads a file of the samples.
func sample(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{deploy}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The configuration in the sample for Kubernetes is closed and fits the rest of it, of which a test
// of internal/config looks at the rights.
func TestSampleForKubernetesIsClosed(t *testing.T) {
	t.Parallel()
	manifest := sample(t, "kubernetes", "streamer.yaml")
	word := func(pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(manifest)
		if found == nil {
			t.Fatalf("there is no %s", pattern)
		}
		return found[1]
	}
	file := strings.ReplaceAll("\n"+word(`(?s)\n  config\.yaml: \|\n(.*?)\n---`), "\n    ", "\n")
	environ := []string{"STREAMER_NODE_ID=streamer-0"}
	for _, v := range regexp.MustCompile(`name: (STREAMER_\w+), value: "?([^"}]+)`).FindAllStringSubmatch(manifest, -1) {
		environ = append(environ, v[1]+"="+strings.ReplaceAll(v[2], "$(STREAMER_NODE_ID)", "streamer-0"))
	}
	cfg := closed(t, file, environ)
	if got := fmt.Sprint(cfg.Cluster.ExpectedNodes); got != word(`replicas: (\d+)`) || cfg.GRPC.Advertise != "streamer-0.streamer:9090" {
		t.Errorf("%s nodes, at %s", got, cfg.GRPC.Advertise)
	}
	grace, err := time.ParseDuration(word(`terminationGracePeriodSeconds: (\d+)`) + "s")
	if err != nil {
		t.Fatal(err)
	}
	patient(t, cfg, grace)
}

// The sample for systemd takes from the node whatever it does not need. docs/security.md has the
// exposure that systemd measures.
func TestSampleForSystemdIsClosed(t *testing.T) {
	t.Parallel()
	service, section := map[string]string{}, ""
	for line := range strings.Lines(sample(t, "systemd", "streamer.service")) {
		line = strings.TrimSpace(line)
		name, value, found := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !found:
			t.Errorf("%q is no setting", line)
		case section == "[Service]":
			if before, twice := service[name]; twice {
				value = before + " " + value
			}
			service[name] = value
		}
	}
	for name, want := range map[string]string{
		"User": "streamer", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "UMask": "0077", "LimitCORE": "0",
		"ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes", "PrivateMounts": "yes", "PrivateUsers": "yes",
		"ProtectClock": "yes", "ProtectControlGroups": "yes", "ProtectHostname": "yes", "ProtectKernelLogs": "yes", "ProtectKernelModules": "yes",
		"ProtectKernelTunables": "yes", "ProtectProc": "invisible", "RemoveIPC": "yes", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes",
		"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "RestrictNamespaces": "yes", "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes",
		"SystemCallArchitectures": "native", "SystemCallFilter": "@system-service ~@privileged @resources", "MemoryMax": "1G", "TasksMax": "512",
		"ExecStart": "/usr/local/bin/streamer run -f /etc/streamer/config.yaml", "ExecStartPre": "/usr/local/bin/streamer check -f /etc/streamer/config.yaml",
		"LoadCredential": "mongodb-uri:/etc/streamer/mongodb-uri etcd.key:/etc/streamer/etcd.key",
	} {
		if got, there := service[name]; !there || got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	grace, err := time.ParseDuration(service["TimeoutStopSec"])
	if err != nil {
		t.Fatal(err)
	}
	patient(t, closed(t, sample(t, "systemd", "config.yaml"), nil), grace)
}

// closed has the real command check a sample's configuration, beside the files that it names, and
// requires that it finds nothing wrong.
func closed(t *testing.T, file string, environ []string) config.Config {
	t.Helper()
	dir := t.TempDir()
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Issue(t, "node", 1000*time.Hour)
	uri := regexp.MustCompile(`One line: (mongodb://\S+)`).FindStringSubmatch(file)
	if uri == nil {
		t.Fatal("the sample shows no connection string")
	}
	content := map[string][]byte{
		"mongodb-uri": []byte(uri[1]), "tls.crt": cert, "tls.key": key, "ca.crt": cert, "etcd-ca.crt": cert, "etcd.crt": cert, "etcd.key": key,
		"identities": fmt.Appendf(nil, "token %s name=billing namespace=shop.* max_subscriptions=100 events_per_second=2000\n", access.Hash("x")),
	}
	named := regexp.MustCompile(`/(?:etc/streamer|run/credentials/streamer\.service)/[a-z/.-]+`)
	for _, path := range named.FindAllString(file, -1) {
		data, known := content[filepath.Base(path)]
		if !known {
			t.Fatalf("what is in %s?", path)
		}
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(named.ReplaceAllString(file, dir+"$0")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, launch{args: []string{"config", "check", "-f", path, "-o", "json"}, env: environ})
	exit := p.wait()
	if found := decode[findings](t, strings.Join(p.output.all(), "\n")); exit != 0 || !found.OK || found.notOK() != "" {
		t.Errorf("exit code %d: %+v", exit, found)
	}
	cfg, err := config.Load(path, environ)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// patient holds the time until a stop is forced against what a planned one may take.
func patient(t *testing.T, cfg config.Config, grace time.Duration) {
	t.Helper()
	stop := cfg.Reliability.Shutdown
	if planned := stop.DrainTimeout + stop.FlushTimeout + stop.CheckpointTimeout; grace < planned+10*time.Second {
		t.Errorf("%s until SIGKILL, and a planned stop may take %s", grace, planned)
	}
}
