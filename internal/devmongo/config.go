package devmongo

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// Config is what a server is. The zero Config is a MongoDB 4.4 replica set of one node on a free port.
type Config struct {
	// Addr is where to listen, host:port. Defaults to "127.0.0.1:0".
	Addr string
	// Release is the MongoDB release to be: "4.4", "6.0", "7.0" or "8.0". Defaults to "4.4".
	Release string
	// Preset is the name of what changes the behaviour of any release (package profile). Defaults to none.
	Preset string
	// Adjust changes single behaviours after that. Defaults to none.
	Adjust func(*Profile)
	// Standalone makes a server that is no replica set: no change streams, no transactions.
	Standalone bool
	// Members are other members of the replica set, host:port, to tell clients of. Nothing is replicated: start them from one
	// snapshot to make them members that have the same log.
	Members []string
	// Primary, if it is one of Members, makes this server a secondary: it takes no writes.
	Primary string
	// OplogBytes bounds the oplog. Defaults to 64 MiB.
	OplogBytes int64
	// Snapshot is a file that keeps data and oplog over restarts; it is read by Listen and written by Run.
	// Defaults to none.
	Snapshot string
	// snapshotEvery is how often the snapshot is written while something changes. Defaults to 30 s.
	snapshotEvery time.Duration
	// NoopEvery makes an idle server write no-op entries, so that high watermarks move. Defaults to what the profile says.
	NoopEvery time.Duration
	// HelloAwait bounds how long a waiting hello waits. A driver that disconnects just as its monitor begins such a
	// hello waits for it to end, which takes ten seconds now and then; tests set less. Defaults to what clients
	// ask for.
	HelloAwait time.Duration
	// cursorTimeout is how long an idle cursor lives. Defaults to 10 minutes.
	cursorTimeout time.Duration
	// RequireAuth is here to say that it is not supported: Validate refuses true.
	RequireAuth bool
	// logger gets state changes. Defaults to none.
	logger *slog.Logger
}

// profile is how the server behaves.
func (c Config) profile() Profile {
	p, _ := profileOf(c.Release, c.Preset) // the names are valid
	if c.Adjust != nil {
		c.Adjust(&p)
	}
	return p
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:0")
	c.Release = cmp.Or(c.Release, string(oplog.R44))
	c.OplogBytes = cmp.Or(c.OplogBytes, 64<<20)
	c.snapshotEvery = cmp.Or(c.snapshotEvery, 30*time.Second)
	c.cursorTimeout = cmp.Or(c.cursorTimeout, 10*time.Minute)
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if _, err := profileOf(c.Release, c.Preset); err != nil {
		errs = append(errs, err)
	}
	if c.RequireAuth {
		errs = append(errs, errors.New("devmongo has no authentication; use a failCommand fail point with error 13"))
	}
	if c.Primary != "" && !slices.Contains(c.Members, c.Primary) {
		errs = append(errs, fmt.Errorf("primary %s is not among the other members", c.Primary))
	}
	if c.OplogBytes < 0 || c.snapshotEvery < 0 || c.NoopEvery < 0 || c.HelloAwait < 0 || c.cursorTimeout < 0 {
		errs = append(errs, errors.New("sizes and durations must not be negative"))
	}
	return errors.Join(errs...)
}
