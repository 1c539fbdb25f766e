package gateway

import (
	"context"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Topology maps partitions to the nodes that own them.
type Topology struct {
	Version uint64 // increases with every change, across nodes
	Nodes   []NodeAddress
	Owners  []int // by partition: an index into Nodes, or -1 without an owner
}

// NodeAddress is the address of a node for subscribers. Name is the name in its Welcome; Address is
// empty if unknown.
type NodeAddress struct{ Name, Address string }

// A Topologist provides topologies.
type Topologist interface {
	// Follow returns the current topology if its version is later than version, or else waits for
	// one. Any version is later than 0. It returns an error if the context ends or no further
	// topology follows.
	Follow(ctx context.Context, version uint64) (Topology, error)
}

// runTopology sends the topology to the client whenever it changes. Sessions work without it.
func (c *connection) runTopology(ctx context.Context) error {
	for version := uint64(0); c.server.cfg.Topology != nil; {
		t, err := c.server.cfg.Topology.Follow(ctx, version)
		if err != nil {
			break
		}
		version = t.Version
		m := &streampb.Topology{Version: version, Owners: make([]int32, len(t.Owners))}
		for _, n := range t.Nodes {
			m.Nodes = append(m.Nodes, &streampb.Topology_Node{Name: n.Name, Address: n.Address})
		}
		for p, owner := range t.Owners {
			m.Owners[p] = int32(owner)
		}
		if err := c.writer.send(ctx, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Topology{Topology: m}}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
