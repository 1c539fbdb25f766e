package mongodb

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongostream/streamer/fault"
)

// As long as one server can be asked, the others' failures are no outage; without one it lasts from
// the first moment on.
func TestOutageBeginsWhenNoServerCanBeAsked(t *testing.T) {
	at := time.Unix(1000, 0)
	view := func(kind string, servers ...string) (d event.TopologyDescription) {
		d.Kind = kind
		for _, server := range servers {
			d.Servers = append(d.Servers, event.ServerDescription{Kind: server})
		}
		return d
	}
	c := &Client{}
	if _, err := c.Outage(); err != nil {
		t.Errorf("before anything is known: %v", err)
	}
	s := &topologyState{}
	c.topology.Store(s)
	for i, step := range []struct {
		view   event.TopologyDescription
		missed error
		since  int // of which step; -1: there is no outage
		code   fault.Code
	}{
		{view("ReplicaSetNoPrimary"), nil, 0, fault.MongoUnreachable},
		{view("ReplicaSetWithPrimary", "RSPrimary", "Unknown"), errors.New("refused"), -1, ""},
		{view("ReplicaSetNoPrimary", "RSSecondary", "RSSecondary"), nil, 2, fault.MongoUnreachable},
		{view("ReplicaSetNoPrimary", "Unknown", "Unknown"), errors.New("refused"), 2, fault.MongoUnreachable},
		{view("Sharded", "Unknown", "Mongos"), nil, -1, ""},
		{view("Single", "RSSecondary"), nil, -1, ""},
		{view("Single", "Unknown"), context.Canceled, 6, fault.MongoUnreachable},
		{view("Single", "Unknown"), errors.New("refused"), 6, fault.MongoUnreachable},
	} {
		s.changed(step.view, at.Add(time.Duration(i)*time.Second))
		s.beat(step.missed)
		since, err := c.Outage()
		if fault.Of(err) != step.code || err != nil && since != at.Add(time.Duration(step.since)*time.Second) {
			t.Errorf("step %d: since %s, %v", i, since, err)
		}
	}
}

// A heartbeat that the driver has canceled does not say what is wrong; the one before it may.
func TestOutageHasTheReasonOfAHeartbeat(t *testing.T) {
	s, refused := &topologyState{}, errors.New("refused")
	for i, beat := range []struct{ err, want error }{
		{refused, refused}, {context.Canceled, refused}, {nil, nil}, {refused, refused},
	} {
		if s.beat(beat.err); !errors.Is(s.mu.missed, beat.want) {
			t.Errorf("beat %d: %v, want %v", i, s.mu.missed, beat.want)
		}
	}
}
