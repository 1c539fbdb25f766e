package process

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/leaktest"
)

const (
	// binaryVariable holds the path of the program under test; configuration leaves variables that
	// begin so to the tests.
	binaryVariable = "STREAMER_TEST_BINARY"
	// testVersion is the version that the program under test was built with.
	testVersion = "v0.0.0-test"
)

// TestMain builds the program once, with the race detector where the tests have it.
func TestMain(m *testing.M) {
	if etcdtest.RunMember() {
		return
	}
	if address := os.Getenv(gatewayVariable); address != "" {
		if err := runGateway(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "streamer-test-")
	if err == nil {
		err = build(filepath.Join(dir, "streamer"), raced)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program under test:", err)
		os.Exit(1)
	}
	_ = os.Setenv(binaryVariable, filepath.Join(dir, "streamer"))
	_ = flag.Set("test.parallel", "8") // most of what the tests do is to wait; -parallel still decides
	// Taking a toxic away may leave goroutines of toxiproxy behind.
	code := leaktest.Run(m,
		"github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run",
		"github.com/Shopify/toxiproxy/v2.(*ToxicLink).read")
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the program.
func build(path string, race bool) error {
	args := []string{"build", "-buildvcs=false", "-ldflags=-X main.version=" + testVersion, "-o", path}
	if race {
		args = append(args, "-race")
	}
	if text, err := exec.Command("go", append(args, "../../cmd/streamer")...).CombinedOutput(); err != nil { //nolint:noctx // ends by itself
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}
