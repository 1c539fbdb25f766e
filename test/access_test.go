package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/devmongo"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
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

// Commands ask a node that speaks TLS with a private authority and asks who is there: with a token out of a file or the environment, or with a
// certificate.
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
	tail := []string{"tail", "--url", address, "-o", "json", "--db", l.database}
	tails := []*process{
		run(append(tail[:len(tail):len(tail)], "--token-file", good)),
		run(tail, "STREAMER_CLIENT_TOKEN=good"),
		run(append(tail[:len(tail):len(tail)], "--cert-file", own, "--key-file", ownKey)),
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
	run(append(tail[:len(tail):len(tail)], "--token-file", bad)).refused(fault.AccessUnauthenticated, "token is unknown")
	start(t, launch{args: []string{"tail", "--url", "http://192.0.2.1:8080", "--token-file", good}}).refused(fault.CommandBadArgument, "in plaintext")

	audit := []string{"audit", "--address", address}
	log := run(append(audit[:len(audit):len(audit)], "--token-file", good))
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
	if code := status.wait(); code != 0 || !strings.Contains(strings.Join(status.output.all(), "\n"), "identities") {
		t.Errorf("exit code %d: %q", code, status.output.all())
	}
	start(t, launch{args: []string{"status", "--address", address}}).refused(fault.NodeUnreachable, "certificate")
	start(t, launch{args: []string{"status", "--address", address, "--ca-file", good}}).refused(fault.CommandBadArgument, "holds no certificate")
	node.signal(syscall.SIGTERM)
	node.wait()
}

// What a node would refuse to start with, or not serve with for long, check says of the files before.
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
	list := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*\n", access.Hash("good")))
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
		{"plaintext for all", []string{"STREAMER_GRPC_LISTEN=0.0.0.0:0"}, "grpc fail STRM-ACCESS-PLAINTEXT", "0.0.0.0"},
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
