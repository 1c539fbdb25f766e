package wiring

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/handoff"
)

// A donorServer is the node as the donor of handoffs needs it.
type donorServer struct{ *Membership }

var _ handoff.Server = donorServer{}

// Drain implements handoff.Server.
func (s donorServer) Drain(ctx context.Context, terms []change.Term) {
	s.terms.leave(terms)
	s.cfg.Node.Drain(ctx, terms)
}

// Broadcast implements handoff.Server.
func (s donorServer) Broadcast(window []change.Term) { s.cfg.Node.Broadcast(window) }

// Announce implements handoff.Server.
func (s donorServer) Announce(to string, moved []change.Partition) {
	s.cfg.Announce(delivery.Notice{
		Kind: "moved", Text: fmt.Sprintf("%d partitions move to node %s.", len(moved), to), At: time.Now(), Partitions: moved,
	})
}

// drain waits until the other nodes have taken all partitions of this one, for the drain timeout at
// most. It returns at once if no other node can take any.
func (m *Membership) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.DrainTimeout)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	begun := time.Now()
	had := len(m.cfg.Node.Status())
	for len(m.cfg.Node.Status()) > 0 && m.member.Trusted() && m.others() {
		select {
		case <-look.C:
		case <-ctx.Done():
			m.cfg.Logger.Warn("not all partitions have moved to other nodes in time", "partitions", len(m.cfg.Node.Status()), "after", time.Since(begun).String())
			return
		}
	}
	if moved := had - len(m.cfg.Node.Status()); moved > 0 {
		m.cfg.Logger.Info("partitions moved to other nodes", "partitions", moved, "after", time.Since(begun))
	}
}

// others reports whether another node could take partitions.
func (m *Membership) others() bool {
	view, _ := m.View()
	return slices.ContainsFunc(view.Members, func(s cluster.Member) bool {
		return s.Garbled == nil && s.Node != m.cfg.Member.Node && s.Kind != cluster.KindGateway && s.Status == cluster.StatusHealthy
	})
}
