package mongodb

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The driver knows at once when no server is left that it could ask, and tells whoever waits for
// one only when that has taken too long. So its view of the deployment is observed.

// A topologyState is the view of one pool.
type topologyState struct {
	mu struct {
		sync.Mutex
		since  time.Time // since when no server can be asked, zero while one can
		missed error     // why the last heartbeat failed, nil where it did not
	}
}

// observe makes a pool's view that of the client.
func (c *Client) observe(o *options.ClientOptions) {
	state := &topologyState{}
	c.topology.Store(state)
	o.SetServerMonitor(&event.ServerMonitor{
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) { state.changed(e.NewDescription, time.Now()) },
		ServerHeartbeatFailed:      func(e *event.ServerHeartbeatFailedEvent) { state.beat(e.Failure) },
		ServerHeartbeatSucceeded:   func(*event.ServerHeartbeatSucceededEvent) { state.beat(nil) },
	})
}

// changed notes whether there is a server to ask.
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

// beat notes how a heartbeat to a server ended.
func (s *topologyState) beat(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.missed = err
}

// errNoPrimary says that the servers answer, and none takes requests for what a majority has.
var errNoPrimary = errors.New("the replica set has no primary")

// Outage returns since when no server can be asked, and why; nil while one can.
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
