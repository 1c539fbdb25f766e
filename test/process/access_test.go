package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// put writes a file of the test.
func put(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Commands ask a node that speaks TLS with a private authority and asks who is there: with a token
// out of a file or the environment, or with a certificate.
func TestCommandsShowWhoTheyAre(t *testing.T) {
	t.Parallel()
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	authority := ca.CAFile(t)
	list := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*\nsubject CN=operator name=ops namespace=*\n", access.Hash("good")))
	pair, private := ca.Issue(t, "operator", time.Hour)
	own, ownKey := put(t, "own.crt", pair), put(t, "own.key", private)
	good, bad := put(t, "good", []byte("good\n")), put(t, "bad", []byte("bad"))

	l, _ := newDevLab(t, "etcd")
	l = l.with("STREAMER_HTTP_TLS_CERT_FILE="+cert, "STREAMER_HTTP_TLS_KEY_FILE="+key, "STREAMER_HTTP_TLS_CLIENT_CA_FILE="+authority,
		"STREAMER_HTTP_TLS_CLIENT_OPTIONAL=true", "STREAMER_ACCESS_IDENTITIES_FILE="+list)
	node := l.node()
	address := "https://" + strings.TrimPrefix(node.address(), "http://")
	trust := []string{"--ca-file", authority, "--server-name", "localhost"}
	run := func(command []string, env ...string) *process {
		return start(t, launch{args: append(command, trust...), env: env})
	}
	tail := []string{"tail", "--address", address, "-o", "json", "--db", l.database}
	tails := []*process{
		run(append(slices.Clip(tail), "--token-file", good)),
		run(tail, "STREAMER_CLIENT_TOKEN=good"),
		run(append(slices.Clip(tail), "--cert-file", own, "--key-file", ownKey)),
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for i, p := range tails { // a tail begins with what happens once it is connected
		for id := i * 1000; ; id++ {
			l.insert(id, id+1)
			if line, _, _ := p.output.find(`"_id"`, 0); line != "" {
				break
			}
			select {
			case <-again.C:
			case <-p.ended:
				t.Fatalf("tail %d has ended", i)
			}
		}
		p.signal(syscall.SIGTERM)
		p.wait()
	}

	run(tail).refused(fault.AccessUnauthenticated, "no token and no client certificate")
	run(append(slices.Clip(tail), "--token-file", bad)).refused(fault.AccessUnauthenticated, "token is unknown")
	start(t, launch{args: []string{"tail", "--address", "http://192.0.2.1:8080", "--token-file", good}}).refused(fault.CommandBadArgument, "in plaintext")

	audit := []string{"audit", "--address", address}
	log := run(append(slices.Clip(audit), "--token-file", good))
	code, said := log.wait(), ""
	if said = strings.Join(log.output.all(), "\n"); code != 0 {
		t.Errorf("exit code %d: %q", code, said)
	}
	for _, want := range []string{"session_began", "session_ended", `"ops"`, "login_refused", "unknown_token", "nothing_shown"} {
		if !strings.Contains(said, want) {
			t.Errorf("the audit log does not tell of %s: %q", want, said)
		}
	}
	run(audit).refused(fault.AccessUnauthenticated, "no token and no client certificate")

	status := run([]string{"status", "--address", address})
	if code := status.wait(); code != 0 || !strings.Contains(strings.Join(status.output.all(), "\n"), "no problems") {
		t.Errorf("exit code %d: %q", code, status.output.all())
	}
	start(t, launch{args: []string{"status", "--address", address}}).refused(fault.NodeUnreachable, "certificate")
	start(t, launch{args: []string{"status", "--address", address, "--ca-file", good}}).refused(fault.CommandBadArgument, "holds no certificate")
	node.signal(syscall.SIGTERM)
	node.wait()
}

// What a node would refuse to start with, or not serve with for long, check says of the files
// before.
func TestCheckReadsTheFilesOfWhoMayConnect(t *testing.T) {
	t.Parallel()
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	_, strange := ca.Files(t)
	issued := func(valid time.Duration) []string {
		c, k := ca.Issue(t, "server", valid)
		return []string{"STREAMER_HTTP_TLS_CERT_FILE=" + put(t, "c", c), "STREAMER_HTTP_TLS_KEY_FILE=" + put(t, "k", k)}
	}
	long := issued(1000 * time.Hour)
	const limits = " max_subscriptions=10 events_per_second=1000"
	list := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*%s\n", access.Hash("good"), limits))
	unlimited := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*%s\ntoken %s name=eve namespace=* max_subscriptions=10\n",
		access.Hash("good"), limits, access.Hash("eve")))
	readable := put(t, "readable", []byte("a secret of the cluster"))
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	subjects := put(t, "identities", []byte("subject CN=operator name=ops namespace=*\n"))
	jwt := func(file string) []string {
		return []string{"STREAMER_ACCESS_JWKS_FILE=" + file, "STREAMER_ACCESS_ISSUER=https://issuer.example", "STREAMER_ACCESS_AUDIENCES=streamer"}
	}
	l := labOn(t, "mongo", devmongotest.Start(t, devmongo.Config{Release: "7.0"}).URI())
	for _, tt := range []struct {
		name     string
		settings []string
		want     string
		says     string
	}{
		{"nothing", nil, "", "authentication is off"},
		{"all in order", append(long, "STREAMER_HTTP_LISTEN=0.0.0.0:0", "STREAMER_ACCESS_IDENTITIES_FILE="+list), "", "1 tokens"},
		{"a certificate that ends soon", issued(time.Hour), "http warn STRM-ACCESS-EXPIRES", "valid until"},
		{"one that has ended", issued(-time.Minute), "http fail STRM-ACCESS-BAD-CERTIFICATE", "expired"},
		{"a key of another one", []string{"STREAMER_GRPC_TLS_CERT_FILE=" + cert, "STREAMER_GRPC_TLS_KEY_FILE=" + strange}, "grpc fail STRM-ACCESS-BAD-CERTIFICATE", "private key"},
		{"no authorities", append(long, "STREAMER_HTTP_TLS_CLIENT_CA_FILE="+key), "http fail STRM-ACCESS-BAD-CERTIFICATE", "no certificate"},
		{"plaintext for all", []string{"STREAMER_GRPC_LISTEN=0.0.0.0:0"}, "grpc fail STRM-ACCESS-PLAINTEXT, identities warn STRM-ACCESS-OPEN", "0.0.0.0"},
		{"plaintext for all, as wanted", []string{"STREAMER_GRPC_LISTEN=0.0.0.0:0", "STREAMER_GRPC_INSECURE=true", "STREAMER_ACCESS_IDENTITIES_FILE=" + list},
			"grpc warn STRM-ACCESS-PLAINTEXT", "plaintext at 0.0.0.0:0"},
		{"nobody is asked", append(long, "STREAMER_HTTP_LISTEN=0.0.0.0:0"), "identities warn STRM-ACCESS-OPEN", "anyone who can connect to HTTP at 0.0.0.0:0"},
		{"one without limits", append(long, "STREAMER_HTTP_LISTEN=0.0.0.0:0", "STREAMER_ACCESS_IDENTITIES_FILE="+unlimited),
			"identities warn STRM-ACCESS-UNLIMITED", "events and bytes: eve"},
		{"a secret for everybody", []string{"STREAMER_NOTICES_WEBHOOK_URL=https://127.0.0.1:1/x", "STREAMER_NOTICES_WEBHOOK_SECRET_FILE=" + readable},
			"secrets warn STRM-CONFIG-EXPOSED, webhook warn STRM-RECEIVER-UNREACHABLE", readable + " (notices.webhook.secret)"},
		{"a line that is wrong", []string{"STREAMER_ACCESS_IDENTITIES_FILE=" + put(t, "i", []byte("token good name=ops namespace=*\n"))},
			"identities fail STRM-ACCESS-BAD-FILE", "line 1"},
		{"subjects without an authority", []string{"STREAMER_ACCESS_IDENTITIES_FILE=" + subjects}, "identities fail STRM-ACCESS-BAD-FILE", "client CA"},
		{"a secret among the keys", jwt(put(t, "jwks", []byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`))), "jwks fail STRM-ACCESS-BAD-FILE", "contains a private key"},
		{"keys that are not there", jwt(cert + ".not"), "jwks fail STRM-ACCESS-BAD-FILE", "no such file"},
	} {
		p, found := l.with(tt.settings...).check()
		text := fmt.Sprint(found)
		if found.notOK() != tt.want || !strings.Contains(text, tt.says) || strings.Contains(text, "token good") {
			t.Errorf("%s: found %s\n want %s\n%s", tt.name, found.notOK(), tt.want, text)
		}
		if failed := strings.Contains(tt.want, " fail "); failed != (p.cmd.ProcessState.ExitCode() != 0) {
			t.Errorf("%s: exit code %d", tt.name, p.cmd.ProcessState.ExitCode())
		}
	}
}

// What leaves a node open to strangers is a warning with its remedy, told without connecting to
// anything; what keeps it from starting is an error.
func TestConfigCheckGradesWhatIsOpen(t *testing.T) {
	t.Parallel()
	ca := accesstest.NewAuthority(t)
	pair, private := ca.Issue(t, "server", 1000*time.Hour)
	cert, key := put(t, "tls.crt", pair), put(t, "tls.key", private)
	tls := "tls: {cert_file: " + cert + ", key_file: " + key + "}"
	list := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*\n", access.Hash("good")))
	password := put(t, "password", []byte("hidden"))
	if err := os.Chmod(password, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		want       string
		says       string
	}{
		{"the defaults", "", "", ""},
		{"plaintext", "{http: {listen: ':8080', insecure: true}, grpc: {listen: ':9090', insecure: true}}",
			"http warn STRM-ACCESS-PLAINTEXT, grpc warn STRM-ACCESS-PLAINTEXT, identities warn STRM-ACCESS-OPEN", "HTTP at :8080 and gRPC at :9090"},
		{"plaintext unasked", "{grpc: {listen: ':9090'}}", "grpc fail STRM-ACCESS-PLAINTEXT, identities warn STRM-ACCESS-OPEN", "reachable"},
		{"nobody is asked", "{http: {listen: ':8080', " + tls + "}}", "identities warn STRM-ACCESS-OPEN", "HTTP at :8080 can read everything"},
		{"certificates are asked for", "{http: {listen: ':8080', tls: {cert_file: " + cert + ", key_file: " + key + ", client_ca_file: " + ca.CAFile(t) + "}}}", "", ""},
		{"no limits", "{http: {listen: ':8080', " + tls + "}, access: {identities_file: " + list + "}}", "identities warn STRM-ACCESS-UNLIMITED", "ops"},
		{"identities of the node's machine", "{access: {identities_file: /none/identities}}", "identities skip", "not tried here"},
		{"MongoDB in plaintext", "{mongodb: {uri: 'mongodb://u:p@db:27017,127.0.0.1/'}}", "mongodb_link warn STRM-MONGODB-EXPOSED", "no TLS to db:27017"},
		{"MongoDB for everybody", "{mongodb: {uri: 'mongodb+srv://db.example/?tlsInsecure=true'}}", "mongodb_link warn STRM-MONGODB-EXPOSED",
			"certificates are not verified; no credentials"},
		{"MongoDB, closed", "{mongodb: {uri: 'mongodb://u:p@db/?tls=true'}}", "", ""},
		{"etcd in plaintext", "{etcd: {endpoints: ['e1:2379', 'https://e2:2379'], username: u, password_file: " + password + "}}",
			"secrets warn STRM-CONFIG-EXPOSED, etcd_link warn STRM-ETCD-EXPOSED", "no TLS to e1:2379"},
		{"etcd that is not used", "{etcd: {endpoints: ['e1:2379']}, reliability: {checkpoint: {backend: mongo}}}", "", ""},
		{"etcd that nodes share", "{etcd: {endpoints: ['https://e1:2379']}, cluster: {expected_nodes: 2}, reliability: {checkpoint: {backend: mongo}}}",
			"etcd_link warn STRM-ETCD-EXPOSED", "no credentials"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := put(t, "config.yaml", []byte(tt.file))
			p := start(t, launch{args: []string{"config", "check", "-f", path, "-o", "json"}})
			exit := p.wait()
			found := decode[findings](t, strings.Join(p.output.all(), "\n"))
			if text := fmt.Sprint(found); found.notOK() != tt.want || !strings.Contains(text, tt.says) || strings.Contains(text, "u:p") {
				t.Errorf("found %s\n want %s\n%s", found.notOK(), tt.want, text)
			}
			if failed := strings.Contains(tt.want, " fail "); failed != (exit == 1) || failed == found.OK {
				t.Errorf("exit code %d", exit)
			}
			for _, c := range found.Checks {
				if entry, known := fault.Lookup(fault.Code(c.Code)); c.Code != "" && (!known || c.Remedy != entry.Remedy) {
					t.Errorf("%+v", c)
				}
			}
		})
	}
	// The file itself may have the secret, and people read what is found.
	path := put(t, "config.yaml", []byte("{mongodb: {uri: 'mongodb://u:p@db/?tls=true'}}"))
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	entry, _ := fault.Lookup(fault.ConfigExposed)
	if _, output := command(t, "config", "check", "-f", path); !strings.HasPrefix(output, "configuration ok\n") ||
		!strings.Contains(output, "secrets  warn  ") || !strings.Contains(output, path+" (mongodb.uri)") || !strings.Contains(output, "remedy: "+entry.Remedy) {
		t.Error(output)
	}
	// A debug listener that other machines reach is refused, whatever else is configured.
	start(t, launch{args: []string{"config", "check"}, env: []string{"STREAMER_DEBUG_LISTEN=0.0.0.0:6060"}}).refused(fault.ConfigBadValue, "loopback")
}
