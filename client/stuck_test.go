package client_test

import (
	"context"
	"slices"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// enters welcomes a session with a node of two, of which the first owns partition 0 and the second
// partition 1.
func enters(t *testing.T, n *node, name, begin string, nodes ...*node) *visit {
	t.Helper()
	v, start := n.accept(t), streampb.Begin_BEGIN_START
	if v.hello.GetPosition() != nil {
		start = streampb.Begin_BEGIN_POSITIONS
	}
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: "c", Node: name, PartitionCount: 2, Begin: start, Limits: &streampb.Limits{HeartbeatIntervalMs: 60_000, HeartbeatTimeoutMs: 60_000},
	}}})
	topology := &streampb.Topology{Version: 1, Owners: []int32{0, 1}}
	for i, n := range nodes {
		topology.Nodes = append(topology.Nodes, &streampb.Topology_Node{Name: []string{"a", "b"}[i], Address: n.address})
	}
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Topology{Topology: topology}})
	v.batch(begin)
	return v
}

// attaches waits until the client has asked for partitions, and attaches them.
func (v *visit) attaches(at string, partitions ...uint32) {
	v.t.Helper()
	for len(partitions) > 0 {
		b := batch(at)
		for _, p := range v.next().GetAttach().GetPositions() {
			b.Attached = append(b.Attached, p.GetPartition())
			partitions = slices.DeleteFunc(partitions, func(other uint32) bool { return other == p.GetPartition() })
		}
		if len(b.Attached) > 0 {
			v.sendBatch(b)
		}
	}
}

// detaches waits until the client has given up a partition.
func (v *visit) detaches(partition uint32) {
	v.t.Helper()
	for !slices.Contains(v.next().GetDetach().GetPartitions(), partition) {
	}
}

// The session with a node that is about to stop waits, at a change of all partitions, for the
// partition of another node whose session breaks. No partition is attached to a session with a node
// that stops, and the client searches for nodes when it has no session: the one that waits ends.
func TestNobodyWaitsForAPartitionThatNobodyBrings(t *testing.T) {
	a, b, j := newNode(t), newNode(t), newJournal()
	cfg := config(j, a.address, b.address)
	cfg.Partitions = client.Owned
	p := start(t, cfg, j.handle)
	first := enters(t, a, "a", "a", a, b)
	second := enters(t, b, "b", "a", a, b)
	first.attaches("a", 0)
	second.attaches("a", 1)
	first.detaches(1) // until then the first session has it, too, and waits for nobody
	first.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: string(client.ShuttingDown)}}})
	told(t, j, func(n client.Service) bool { return n.Kind == client.ShuttingDown })
	second.attaches("a", 0)
	first.batch("b1", "0:b1")
	j.expect(t, "0:b1")
	first.batch("c1", "*:c1")
	second.close(errBroken)
	first.left()
	again := enters(t, b, "b", "a", a, b)
	again.attaches("a", 0, 1)
	again.batch("c1", "1:b2", "*:c1")
	j.expect(t, "0:b1", "1:b2", "*:c1")
	p.end()
}

// A session is left while it waits with a loss for what comes before it. What it has been sent
// after the loss is not handled: the session that replaces it brings both.
func TestNothingIsHandledAfterWhatWasNotTaken(t *testing.T) {
	a, b, j := newNode(t), newNode(t), newJournal()
	cfg := config(j, a.address, b.address)
	began, goesOn := make(chan struct{}), make(chan struct{})
	p := start(t, cfg, func(ctx context.Context, c client.Change) error {
		if string(c.Data) == "b1" {
			close(began)
			<-goesOn
		}
		return j.handle(ctx, c)
	})
	first := a.welcomed(t, 1, "a")
	first.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: string(client.ShuttingDown)}}})
	first.batch("b1", "0:b1")
	<-began
	first.loss(streampb.Loss_KIND_RESYNC, "c", 0)
	first.batch("d1", "0:d1")
	second := b.welcomed(t, 1, "a") // which is where the client is: the first session is left
	first.left()
	close(goesOn)
	j.expect(t, "0:b1")
	second.batch("b1", "0:b1")
	second.loss(streampb.Loss_KIND_RESYNC, "c", 0)
	second.batch("d1", "0:d1")
	j.expect(t, "0:b1", "resync history_lost", "0:d1")
	p.end()
}
