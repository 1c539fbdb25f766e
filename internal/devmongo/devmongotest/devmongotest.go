package devmongotest

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/devmongo"
)

// Start runs a server until the test ends, and waits for its end. Waiting hellos are cut short, so that drivers
// disconnect without delay.
func Start(t testing.TB, c devmongo.Config) *devmongo.Server {
	t.Helper()
	c.HelloAwait = cmp.Or(c.HelloAwait, 500*time.Millisecond)
	s, err := devmongo.Listen(c)
	if err != nil {
		t.Fatalf("start devmongo: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("devmongo: %v", err)
		}
	})
	return s
}

// URI is a MongoDB to test against: the one that STREAMER_TEST_MONGODB_URI names, else a server of its own.
func URI(t testing.TB) string {
	t.Helper()
	if uri := os.Getenv("STREAMER_TEST_MONGODB_URI"); uri != "" {
		return uri
	}
	return Start(t, devmongo.Config{}).URI()
}
