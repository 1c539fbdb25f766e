package wiring

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/gateway"
)

// maxGateway is how many bytes of a heartbeat a gateway takes at most, so that all of them take 256
// KiB of the 1.5 MiB that etcd accepts in a request: the partitions of a node take some 400 KiB.
const maxGateway = 1 << 10

// gatewaysOf returns the gateways for a node's heartbeat. It names as many failing checks as there
// is room for; a gateway whose name alone does not fit is not a member.
func gatewaysOf(peers []gateway.Peer, now time.Time) []cluster.Gateway {
	gateways := make([]cluster.Gateway, 0, len(peers))
	for _, p := range peers {
		g := cluster.Gateway{
			Name: p.Name, Process: p.Process, StartedAt: p.Started.UTC(), Since: p.Since.UTC(), Silence: max(now.Sub(p.Reported), 0),
			Failing: p.Failing, Left: p.Left,
		}
		for n := len(p.Failing); size(g) > maxGateway && n > 0; {
			n--
			g.Failing = append(p.Failing[:n:n], fmt.Sprintf("%d others", len(p.Failing)-n))
		}
		if size(g) <= maxGateway {
			gateways = append(gateways, g)
		}
	}
	return gateways
}

// size returns how many bytes a gateway takes in a heartbeat. One that cannot be written takes too
// many.
func size(g cluster.Gateway) int {
	text, err := json.Marshal(g)
	if err != nil { // a year that RFC 3339 cannot write
		return maxGateway + 1
	}
	return len(text)
}

// watchGateways does the leader's work in a single-node cluster until the context ends: with every
// beat the node itself looks at its gateways.
func (m *Membership) watchGateways(ctx context.Context) {
	cfg := m.planConfig()
	cfg.Alone, cfg.Expected = true, 1
	planner := plan.New(cfg)
	tick := time.NewTicker(m.cfg.HeartbeatInterval)
	defer tick.Stop()
	for beat := int64(1); ; beat++ {
		h := cluster.Heartbeat{Node: m.cfg.Member.Node, Process: m.cfg.Member.Process, Kind: cluster.KindNode, Status: cluster.StatusHealthy}
		h.Gateways, h.Unlisted = m.gateways()
		d := planner.Step(m.cfg.Clock(), cluster.View{Revision: beat, Members: []cluster.Member{{Heartbeat: h, Joined: 1, Beat: beat}}})
		for _, news := range d.News {
			m.cfg.Logger.Info(news) //nolint:sloglint // as the leader of a cluster does
		}
		for _, n := range d.Notices {
			m.cfg.Board.Post(n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// gateways returns the node's gateways.
func (m *Membership) gateways() (listed []cluster.Gateway, unlisted int) {
	if m.cfg.Gateways == nil {
		return nil, 0
	}
	peers, unlisted := m.cfg.Gateways()
	return gatewaysOf(peers, time.Now()), unlisted
}
