package leader

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/notice"
)

// Config configures a Leader.
type Config struct {
	plan.Config

	// RoundFloor is the shortest pause between two rounds, Debounce the longest one while changes
	// keep coming; between them it is 9 times as long as the last round took. Default to 50 ms and
	// 1 s.
	RoundFloor, Debounce time.Duration
	// Trusted says whether the node may lead: it is attached to the cluster. Defaults to always.
	Trusted func() bool
	// Resynced is called at every step of a resync and sends the notices to gateways. It must not
	// block. Defaults to nothing.
	Resynced func(plan.Resync)
	// Board takes the notices. Nil discards them.
	Board *notice.Board
	// Clock should also count the time in which the machine is suspended; only differences between
	// readings matter. Defaults to Go's monotonic clock, which may not count it.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// rest returns the pause after a round that took so long.
func (c Config) rest(took time.Duration) time.Duration {
	return min(max(share*took, c.RoundFloor), c.Debounce)
}

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	c.RoundFloor, c.Debounce = cmp.Or(c.RoundFloor, 50*time.Millisecond), cmp.Or(c.Debounce, time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Trusted == nil {
		c.Trusted = func() bool { return true }
	}
	if c.Resynced == nil {
		c.Resynced = func(plan.Resync) {}
	}
	if c.Clock == nil {
		began := time.Now()
		c.Clock = func() time.Duration { return time.Since(began) }
	}
	return c
}
