package wiring

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
)

const (
	// alarmsEvery is how often etcd is asked for its alarms, alarmsTimeout how long it may take.
	alarmsEvery   = 5 * time.Second
	alarmsTimeout = 3 * time.Second
)

// alarms are what etcd has raised, as it was last heard.
type alarms struct{ raised atomic.Pointer[string] }

// follow asks for the alarms again and again until the context ends. An etcd that does not answer
// is for other checks to tell; what it said before stays.
func (a *alarms) follow(ctx context.Context, ask func(context.Context) ([]string, error)) {
	tick := time.NewTicker(alarmsEvery)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, alarmsTimeout)
		names, err := ask(asking)
		cancel()
		if err == nil {
			raised := strings.Join(names, ", ")
			a.raised.Store(&raised)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check returns the fault of an alarm that is raised, with what it means for the cluster.
func (a *alarms) check() error {
	raised := a.raised.Load()
	if raised == nil || *raised == "" {
		return nil
	}
	return fault.Newf(fault.EtcdAlarm,
		"raised: %s: subscribers that are connected are served on, but no checkpoint is saved, no partition moves, and no new name begins", *raised)
}
