//go:build prove

package node

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// liveWorlds is the number of servers, each with a node, that are played at once: a play mostly
// waits.
const liveWorlds = 12

// STREAMER_LIVE_STEPS is how many steps there are to be, however long they take.
func TestProveLiveQueriesFollowEverything(t *testing.T) {
	most, steps := 10*time.Minute, int64(0)
	if text, given := os.LookupEnv("STREAMER_LIVE_STEPS"); given {
		var err error
		if steps, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		most = 1000 * time.Hour
	}
	endlessChecks(t)
	if err := flag.Set("rapid.steps", "200"); err != nil { // processes begin anew within a play, too
		t.Fatal(err)
	}
	for world := range liveWorlds {
		t.Run(fmt.Sprint("world ", world), func(t *testing.T) {
			t.Parallel()
			followEverything(t, most, steps/liveWorlds)
		})
	}
}
