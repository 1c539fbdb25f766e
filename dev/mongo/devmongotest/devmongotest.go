package devmongotest

import (
	"cmp"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// preset is that of servers for which a test names none.
func preset() string { return os.Getenv("STREAMER_TEST_MONGODB_PROFILE") }

// Start runs a server until the test ends, and waits for its end. Waiting hellos are cut short, so
// that drivers disconnect without delay.
func Start(t testing.TB, c devmongo.Config) *devmongo.Server {
	t.Helper()
	s, stop := start(t, c)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("devmongo: %v", err)
		}
	})
	return s
}

func start(t testing.TB, c devmongo.Config) (s *devmongo.Server, stop func() error) {
	t.Helper()
	c.HelloAwait = cmp.Or(c.HelloAwait, 500*time.Millisecond)
	c.Preset = cmp.Or(c.Preset, preset())
	s, err := devmongo.Listen(c)
	if err != nil {
		t.Fatalf("start devmongo: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, func() error {
		cancel()
		return <-ended
	}
}

// Shared reports whether others use the server of URI: a test must not disturb them, and must
// expect their writes.
func Shared() bool { return os.Getenv("STREAMER_TEST_MONGODB_URI") != "" || preset() != "" }

// shared is the one server of the tests that run at a time.
//
//nolint:gochecknoglobals // one for the process, as a real server would be
var shared struct {
	sync.Mutex
	server *devmongo.Server
	stop   func() error
	users  int
}

// URI is a MongoDB to test against: the one that STREAMER_TEST_MONGODB_URI names, else a server of
// its own. Where STREAMER_TEST_MONGODB_PROFILE names a preset, tests that run at the same time
// share one, as they would share a real server.
func URI(t testing.TB) string {
	t.Helper()
	if uri := os.Getenv("STREAMER_TEST_MONGODB_URI"); uri != "" {
		return uri
	}
	if !Shared() {
		return Start(t, devmongo.Config{}).URI()
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		shared.server, shared.stop = start(t, devmongo.Config{})
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users > 0 {
			return
		}
		if err := shared.stop(); err != nil {
			t.Errorf("devmongo: %v", err)
		}
	})
	return shared.server.URI()
}
