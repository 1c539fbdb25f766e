package mongodb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The driver knows at once when no server is usable, but reports it to a waiting request only after
// the selection timeout. So we observe its view of the deployment.

// A topologyState is one pool's view of the deployment.
type topologyState struct {
	mu struct {
		sync.Mutex
		since  time.Time // when the last usable server was lost, zero while one is usable
		missed error     // the error of the last heartbeat, nil if it succeeded
	}
}

// observe makes a pool's view the view of the client.
func (c *Client) observe(o *options.ClientOptions) {
	state := &topologyState{}
	c.topology.Store(state)
	o.SetServerMonitor(&event.ServerMonitor{
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) { state.changed(e.NewDescription, time.Now()) },
		ServerHeartbeatFailed:      func(e *event.ServerHeartbeatFailedEvent) { state.beat(e.Failure) },
		ServerHeartbeatSucceeded:   func(*event.ServerHeartbeatSucceededEvent) { state.beat(nil) },
	})
}

// changed notes whether a server is usable.
func (s *topologyState) changed(now event.TopologyDescription, at time.Time) {
	asks := slices.ContainsFunc(now.Servers, func(server event.ServerDescription) bool {
		switch server.Kind {
		case "RSPrimary", "Mongos", "Standalone":
			return true
		default:
			return now.Kind == "Single" && server.Kind != "Unknown"
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case asks:
		s.mu.since = time.Time{}
	case s.mu.since.IsZero():
		s.mu.since = at
	}
}

// beat notes the outcome of a heartbeat. One that the driver has canceled, because a connection was
// closed, does not replace the reason of the one before it.
func (s *topologyState) beat(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		err = cmp.Or(s.mu.missed, cut(err))
	}
	s.mu.missed = err
}

// errNoPrimary reports that the servers answer, but none of them is the primary.
var errNoPrimary = errors.New("the replica set has no primary")

// Outage returns since when no server is usable, and why; the error is nil while one is usable.
func (c *Client) Outage() (since time.Time, err error) {
	s := c.topology.Load()
	if s == nil {
		return time.Time{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.since.IsZero() {
		return time.Time{}, nil
	}
	return s.mu.since, AsFault(cmp.Or(s.mu.missed, errNoPrimary))
}
