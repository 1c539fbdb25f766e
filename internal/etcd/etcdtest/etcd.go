package etcdtest

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	devetcd "github.com/mongostream/streamer/dev/etcd"
)

// EndpointsVariable names the environment variable that holds the endpoints of a running etcd,
// separated by commas.
const EndpointsVariable = "STREAMER_TEST_ETCD_ENDPOINTS"

// Endpoints returns the endpoints of the running etcd, or starts one that lives as long as the test
// (in less than a tenth of a second, so that every test may have its own).
func Endpoints(t testing.TB) []string {
	t.Helper()
	if running := os.Getenv(EndpointsVariable); running != "" {
		return strings.Split(running, ",")
	}
	return Start(t, devetcd.Config{Dir: t.TempDir()})
}

// Start starts an etcd that lives as long as the test, with a configuration of the test's choice:
// within this process, or the binary that BinaryVariable names.
func Start(t testing.TB, cfg devetcd.Config) []string {
	t.Helper()
	if os.Getenv(BinaryVariable) != "" {
		return startBinary(t, cfg)
	}
	server, err := devetcd.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("etcd: %v", err)
		}
	})
	return server.Endpoints()
}

// Prefix returns a unique prefix, and deletes the keys below it when the test ends.
func Prefix(t testing.TB, endpoints []string) string {
	t.Helper()
	prefix := "/test-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		client := Client(t, endpoints)
		defer func() { _ = client.Close() }()
		var err error
		for range 10 { // the cluster may just have lost its leader
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, err = client.Delete(ctx, prefix+"/", clientv3.WithPrefix())
			cancel()
			if err == nil {
				return
			}
		}
		t.Errorf("delete %s: %v", prefix, err)
	})
	return prefix
}

// Client returns a new client, which the caller closes: for tests that read keys directly, or write
// invalid ones.
func Client(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
