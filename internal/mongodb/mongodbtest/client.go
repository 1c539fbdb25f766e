package mongodbtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/mongodb"
)

// Dial connects to a deployment until the test ends, under a name of its own, by which fail points
// can tell it from others. After an error that tells of an election the driver waits for the
// server's next word; a fail point changes nothing that the server would tell of at once, so it is
// asked often.
func Dial(t testing.TB, uri string) *mongodb.Client {
	t.Helper()
	c, err := mongodb.Dial(t.Context(), mongodb.Config{
		URI: uri + "&heartbeatFrequencyMS=500", Application: "streamer " + rand.Text(), SelectionTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Database returns a name that nobody else uses; the database is dropped when the test ends.
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
