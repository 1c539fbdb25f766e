//go:build prove

package node

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// STREAMER_LIVE_STEPS is how many steps there are to be, however long they take.
func TestProveLiveQueriesFollowEverything(t *testing.T) {
	text, given := os.LookupEnv("STREAMER_LIVE_STEPS")
	if !given {
		followEverything(t, 10*time.Minute, 0)
		return
	}
	steps, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	followEverything(t, 1000*time.Hour, steps)
}
