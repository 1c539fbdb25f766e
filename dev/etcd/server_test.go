package devetcd_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) {
	if !etcdtest.RunMember() {
		leaktest.Main(m)
	}
}

// run runs a server until stop is called.
func run(t *testing.T, cfg devetcd.Config) (endpoints []string, stop func()) {
	t.Helper()
	server, err := devetcd.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	return server.Endpoints(), func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func put(t *testing.T, endpoints []string, key, value string) {
	t.Helper()
	client := etcdtest.Client(t, endpoints)
	defer func() { _ = client.Close() }()
	if _, err := client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, endpoints []string, key string) string {
	t.Helper()
	client := etcdtest.Client(t, endpoints)
	defer func() { _ = client.Close() }()
	resp, err := client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func TestServerGoesOnWithTheKeysOfItsFolder(t *testing.T) {
	cfg := devetcd.Config{Dir: filepath.Join(t.TempDir(), "new", "folder"), Listen: devmongotest.FreeAddress()}
	endpoints, stop := run(t, cfg)
	put(t, endpoints, "k", "v")
	stop()

	endpoints, stop = run(t, cfg)
	defer stop()
	if endpoints[0] != cfg.Listen {
		t.Errorf("listens on %s, not on %s", endpoints[0], cfg.Listen)
	}
	if got := get(t, endpoints, "k"); got != "v" {
		t.Errorf("the key holds %q", got)
	}
}

func TestServersDoNotMeet(t *testing.T) {
	one, stop := run(t, devetcd.Config{Dir: t.TempDir()})
	defer stop()
	other, stop := run(t, devetcd.Config{Dir: t.TempDir()})
	defer stop()
	put(t, one, "k", "v")
	if got := get(t, other, "k"); got != "" {
		t.Errorf("the key holds %q in the other server", got)
	}
	for _, endpoint := range append(one, other...) {
		if !strings.HasPrefix(endpoint, "127.0.0.1:") {
			t.Errorf("%s is not this machine alone", endpoint)
		}
	}
}

func TestServerStopsWithAWatchOpen(t *testing.T) {
	endpoints, stop := run(t, devetcd.Config{Dir: t.TempDir()})
	client := etcdtest.Client(t, endpoints)
	defer func() { _ = client.Close() }()
	watch := client.Watch(t.Context(), "k")
	if _, err := client.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	<-watch
	stop()
}

func TestListenRefusesWhatCannotWork(t *testing.T) {
	endpoints, stop := run(t, devetcd.Config{Dir: t.TempDir()})
	defer stop()
	for name, cfg := range map[string]devetcd.Config{
		"an address in use": {Dir: t.TempDir(), Listen: endpoints[0]},
		"no address":        {Dir: t.TempDir(), Listen: "127.0.0.1:x"},
		"a file for folder": {Dir: filepath.Join("server_test.go", "folder")},
	} {
		if _, err := devetcd.Listen(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPrefixIsEmptiedAtTheEnd(t *testing.T) {
	endpoints := etcdtest.Endpoints(t)
	var prefix string
	t.Run("use", func(t *testing.T) {
		prefix = etcdtest.Prefix(t, endpoints)
		put(t, endpoints, prefix+"/k", "v")
	})
	if got := get(t, endpoints, prefix+"/k"); got != "" {
		t.Errorf("the key still holds %q", got)
	}
}
