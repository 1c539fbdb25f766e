package gateway

import (
	"context"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Topology says which node owns which partition.
type Topology struct {
	Version uint64 // greater for a later one, whichever node tells it
	Nodes   []NodeAddress
	Owners  []int // by partition, an index into Nodes; -1 where nobody owns it
}

// A NodeAddress is where subscribers reach a node. Name is that of its Welcome; Address is empty where it is not known.
type NodeAddress struct{ Name, Address string }

// A Topologist knows who owns what.
type Topologist interface {
	// Follow returns the topology as soon as there is one of a later version, which may be at once; every one is later than 0. It blocks
	// until then. Its error is the context's, or says that there will be no more.
	Follow(ctx context.Context, version uint64) (Topology, error)
}

// runTopology tells the client who owns what, and whenever that changes. A session goes on without.
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
