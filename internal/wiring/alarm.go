package wiring

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
)

const (
	// alarmsEvery is the interval of requests for etcd's alarms, alarmsTimeout the timeout of each.
	alarmsEvery   = 5 * time.Second
	alarmsTimeout = 3 * time.Second
)

// alarms are the last known alarms of etcd.
type alarms struct{ raised atomic.Pointer[string] }

// follow requests the alarms regularly until the context ends. If etcd does not answer, other
// checks report it; the last alarms stay.
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

// check returns the fault of a raised alarm, with its effect on the cluster.
func (a *alarms) check() error {
	raised := a.raised.Load()
	if raised == nil || *raised == "" {
		return nil
	}
	return fault.Newf(fault.EtcdAlarm,
		"raised: %s: subscribers that are connected are served on, but no checkpoint is saved, no partition moves, and no new name begins", *raised)
}
