package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mongostream/fault"
	"mongostream/gateway/access"
	"mongostream/gateway/access/accesstest"
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

	run(tail).refused(fault.AccessUnauthenticated, "neither a token nor a certificate")
	run(append(tail[:len(tail):len(tail)], "--token-file", bad)).refused(fault.AccessUnauthenticated, "token is not known")
	start(t, launch{args: []string{"tail", "--url", "http://192.0.2.1:8080", "--token-file", good}}).refused(fault.CommandBadArgument, "in plaintext")

	status := run([]string{"status", "--address", address})
	if code := status.wait(); code != 0 || !strings.Contains(strings.Join(status.output.all(), "\n"), "identities") {
		t.Errorf("exit code %d: %q", code, status.output.all())
	}
	start(t, launch{args: []string{"status", "--address", address}}).refused(fault.NodeUnreachable, "certificate")
	start(t, launch{args: []string{"status", "--address", address, "--ca-file", good}}).refused(fault.CommandBadArgument, "holds no certificate")
	node.signal(syscall.SIGTERM)
	node.wait()
}
