package handoff

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/handoff/ledger"
)

// Config configures a Desk.
type Config struct {
	// Self is this node's process. Required.
	Self ledger.Party
	// PrepareTimeout is how long a recipient may take until it is ready. Defaults to 30 s.
	PrepareTimeout time.Duration
	// SwitchTimeout is how long the switch may take before the handoff is abandoned. Defaults to 5 s.
	SwitchTimeout time.Duration
	// ServeTimeout is how long the recipient may take to begin to serve what it owns, before it gives it back. Defaults to 10 s.
	ServeTimeout time.Duration
	// Overlap is the window in which the donor delivers on after the switch. 0 is none; a second is usual.
	Overlap time.Duration
	// CallTimeout bounds one call of the ledger, and of the marks. Defaults to 2 s.
	CallTimeout time.Duration
	// Concurrency is how many partitions are given, and how many taken, at the same time; the others wait. Defaults to 8.
	Concurrency int
	// Trusted reports whether this node's lease can be relied on, by a clock that counts suspension. Required.
	Trusted func() bool
	// Clock goes on while the machine is suspended; only differences of its readings count. Required.
	Clock func() time.Duration
	// Ended is told of every handoff that has ended here; nil for nobody. It must not block.
	Ended func(Report)
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.PrepareTimeout = cmp.Or(c.PrepareTimeout, 30*time.Second)
	c.SwitchTimeout = cmp.Or(c.SwitchTimeout, 5*time.Second)
	c.ServeTimeout = cmp.Or(c.ServeTimeout, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Second)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns everything that is wrong with the values.
func (c Config) Validate() error {
	var wrong []error
	for name, d := range map[string]time.Duration{
		"PrepareTimeout": c.PrepareTimeout, "SwitchTimeout": c.SwitchTimeout, "ServeTimeout": c.ServeTimeout,
		"Overlap": c.Overlap, "CallTimeout": c.CallTimeout,
	} {
		if d < 0 {
			wrong = append(wrong, fmt.Errorf("the value %s is %s", name, d))
		}
	}
	if c.Concurrency < 0 {
		wrong = append(wrong, fmt.Errorf("the value Concurrency is %d", c.Concurrency))
	}
	if c.Self.Node == "" || c.Self.Process == "" {
		wrong = append(wrong, errors.New("the value Self is nobody"))
	}
	return errors.Join(wrong...)
}

const (
	// lookEvery is how often the ledger is looked at without a hint.
	lookEvery = 2 * time.Second
	// pause is between two attempts at what has failed.
	pause = 200 * time.Millisecond
	// closeTimeout bounds what a side does about its handoffs after its context has ended.
	closeTimeout = 2 * time.Second
)
