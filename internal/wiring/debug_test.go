package wiring_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/wiring"
)

// logged sends what is logged to a channel, as long as there is room.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

func TestStallIsRecordedAndProfilesAreServed(t *testing.T) {
	mongo, etcd, dir, lines := devmongotest.Start(t, devmongo.Config{}), etcdtest.Endpoints(t), t.TempDir(), make(logged, 1000)
	cfg, err := config.Load("", []string{
		"STREAMER_MONGODB_URI=" + mongo.URI(), "STREAMER_ETCD_ENDPOINTS=" + strings.Join(etcd, ","),
		"STREAMER_ETCD_PREFIX=" + etcdtest.Prefix(t, etcd), "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0",
		"STREAMER_NODE_ID=n", "STREAMER_CLUSTER_PARTITIONS=2",
		"STREAMER_DEBUG_LISTEN=127.0.0.1:0", "STREAMER_DEBUG_DUMP_DIR=" + dir, "STREAMER_DEBUG_STALL_THRESHOLD=1s",
		"STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=1ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	service, err := wiring.Assemble(t.Context(), wiring.Options{
		Config: cfg, Process: rand.Text(),
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Share(t.Context(), "idle"); err != nil { // which acknowledges nothing
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- service.Run(ctx) }()
	go func() {
		err := mongo.Generate(ctx, devmongo.Generate{DB: "shop", Coll: "orders", Count: 1_000_000, Rate: 100})
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		ended <- err
	}()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}()
	recorded := false
	for address := ""; address == "" || !recorded; {
		var line string
		select {
		case line = <-lines:
		case err := <-ended:
			ended <- nil
			t.Fatalf("ended before anything was recorded: %v", err)
		}
		if strings.Contains(line, `msg="profiles are served"`) {
			_, address, _ = strings.Cut(strings.TrimSpace(line), "address=")
			r, err := http.Get("http://" + address + "/debug/pprof/goroutine?debug=1")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if !strings.Contains(string(body), "goroutine profile") {
				t.Errorf("no profile: %s", body)
			}
			rebound, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/cmdline", nil)
			if err != nil {
				t.Fatal(err)
			}
			rebound.Host = "evil.example"
			if r, err = http.DefaultClient.Do(rebound); err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if r.StatusCode != http.StatusForbidden {
				t.Errorf("a page whose name was resolved to this machine: %s", r.Status)
			}
		}
		recorded = recorded || strings.Contains(line, `msg="flight recording written" reason=stall`)
	}
	files, err := filepath.Glob(filepath.Join(dir, "flight-*-stall.trace"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recordings %v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
}
