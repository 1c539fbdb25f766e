package leader

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/notice"
)

// Config says who leads, and how.
type Config struct {
	plan.Config

	// Trusted says whether the node may lead: it is attached to the cluster. Defaults to always.
	Trusted func() bool
	// Resynced hears of every step of a resync: gateways are to be sent the notices. It must not block. Defaults to nothing.
	Resynced func(plan.Resync)
	// Board takes the notices. Nil discards them.
	Board *notice.Board
	// Clock goes on while the machine is suspended; only differences of its readings count. Defaults to Go's monotonic clock, which may
	// not.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
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
