package connect

import (
	"context"

	"github.com/mongostream/streamer/gateway/connect/standing"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A Topology says which node owns which partition.
type Topology struct {
	Version uint64 // greater for a later one, whichever node tells it
	Nodes   []NodeAddress
	Owners  []int // by partition, an index into Nodes; -1 where nobody owns it
}

// A NodeAddress is where gateways reach a node. Name is that of its Welcome; Address is empty where it is not known.
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
		if err := c.send(ctx, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Topology{Topology: m}}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// attach begins partitions where the client says that it stands in them. However many they are, the log is read again once.
func (c *connection) attach(ctx context.Context, positions []*streampb.PartitionPosition) error {
	if err := c.slowDown(ctx, 1); err != nil {
		return err
	}
	stands, err := standing.Read(c.server.cfg.Partitions, positions)
	if err != nil {
		return err
	}
	stood, refused, err := stands.Open(ctx, c.server.cfg.Cursors, c.server.cfg.Partitions)
	if err != nil {
		return err
	}
	if refused != nil {
		c.session.Tell(cursorRefused(refused))
	}
	return c.session.Attach(stands.Have, stood)
}

// partitionsOf converts partitions from or to those of the wire.
func partitionsOf[To, From ~uint32](partitions []From) []To {
	all := make([]To, len(partitions))
	for i, p := range partitions {
		all[i] = To(p)
	}
	return all
}
