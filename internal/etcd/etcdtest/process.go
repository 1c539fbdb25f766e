package etcdtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	devetcd "github.com/mongostream/streamer/dev/etcd"
)

const (
	// memberVariable names the environment variable that makes a test binary run etcd; its value is
	// the configuration file.
	memberVariable = "STREAMER_TEST_ETCD_MEMBER"
	// BinaryVariable names the environment variable with the path of an etcd binary, of any
	// version, that the tests use for every etcd. A test binary whose TestMain begins with
	// RunMember is such a binary; built without the race detector, it is faster than the test that
	// uses it.
	BinaryVariable = "STREAMER_TEST_ETCD_BINARY"
)

// RunMember runs an etcd and returns true if this process was started for that. A package whose
// tests use a Cluster calls it first in TestMain, and returns if it returns true.
func RunMember() bool {
	file := os.Getenv(memberVariable)
	if file == "" {
		return false
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := devetcd.RunMember(ctx, file); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// startProcess starts an etcd with a configuration file; ended is closed when the process has
// ended.
func startProcess(file string, env ...string) (process *exec.Cmd, ended <-chan struct{}, err error) {
	process = exec.Command(os.Args[0]) //nolint:noctx // this program, or the binary that BinaryVariable names; ended by signals
	if binary := os.Getenv(BinaryVariable); binary != "" {
		process = exec.Command(binary, "--config-file", file) //nolint:noctx // this program, or the binary that BinaryVariable names; ended by signals
	}
	process.Env = append(append(os.Environ(), memberVariable+"="+file), env...)
	process.Stderr = os.Stderr
	process.SysProcAttr = withParent()
	started, over := make(chan error), make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // the process ends with the thread that started it
		err := process.Start()
		started <- err
		if err == nil {
			_ = process.Wait()
		}
	}()
	return process, over, <-started
}

// startBinary starts an etcd of one member, with devetcd's settings, in a process that lives as
// long as the test.
func startBinary(t testing.TB, cfg devetcd.Config) (endpoints []string) {
	t.Helper()
	for { // until no other process has taken its addresses
		name := rand.Text()
		client := cmp.Or(cfg.Listen, freeAddress())
		peer := "http://" + freeAddress()
		text, err := json.Marshal(map[string]any{
			"name": name, "data-dir": cfg.Dir, "initial-cluster": name + "=" + peer,
			"listen-client-urls": "http://" + client, "advertise-client-urls": "http://" + client,
			"listen-peer-urls": peer, "initial-advertise-peer-urls": peer,
			"heartbeat-interval": 10, "election-timeout": 100, "unsafe-no-fsync": true, "bcrypt-cost": 4,
			"logger": "zap", "log-level": "fatal", "log-outputs": []string{"stderr"},
		})
		file := filepath.Join(t.TempDir(), "member.yaml") // which JSON is
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		process, ended, err := startProcess(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = process.Process.Kill()
			<-ended
		})
		if answers(t, name, client, ended) {
			return []string{client}
		}
	}
}

// answers returns true when the etcd of a name answers, and false if its process ends before or
// another answers there.
func answers(t testing.TB, name, endpoint string, ended <-chan struct{}) bool {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var dialer net.Dialer
	for {
		if conn, err := dialer.DialContext(ctx, "tcp", endpoint); err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-look.C:
		case <-ended:
			return false
		case <-ctx.Done():
			t.Fatalf("etcd does not listen on %s", endpoint)
		}
	}
	client := Client(t, []string{endpoint})
	defer func() { _ = client.Close() }()
	for {
		if resp, err := client.MemberList(ctx); err == nil {
			return resp.Members[0].Name == name
		}
		select {
		case <-look.C:
		case <-ended:
			return false
		case <-ctx.Done():
			t.Fatalf("etcd does not answer on %s", endpoint)
		}
	}
}

// ports counts the allocated addresses. They are outside the range of ports for outgoing
// connections.
var ports atomic.Int64 //nolint:gochecknoglobals // of the machine, as ports are

// freeAddress returns a free address, a different one for each call.
func freeAddress() string {
	const lowest, count = 30000, 2700
	first := int64(os.Getpid()) * 71 // other packages' tests run at the same time
	for {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+(first+ports.Add(1))%count)
		if l, err := net.Listen("tcp", address); err == nil { //nolint:noctx // answers at once
			_ = l.Close()
			return address
		}
	}
}
