package mongodbtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/mongodb"
)

// Dial connects to a deployment until the test ends, under a unique name, so that fail points can
// select it. After an error about an election the driver waits for the server's next heartbeat; a
// fail point causes none, so heartbeats are frequent.
func Dial(t testing.TB, uri string) *mongodb.Client {
	t.Helper()
	c, err := mongodb.Dial(t.Context(), mongodb.Config{
		URI: uri + "&heartbeatFrequencyMS=500", Application: "streamer " + rand.Text(), SelectionTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Database returns a unique name; the database is dropped when the test ends.
func Database(t testing.TB, c *mongodb.Client) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if err := c.Driver().Database(name).Drop(context.Background()); err != nil {
			t.Errorf("drop %s: %v", name, err)
		}
	})
	return name
}
