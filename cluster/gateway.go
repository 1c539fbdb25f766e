package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// MaxGateways is how many gateways a heartbeat names. Further gateways are counted in
// Heartbeat.Unlisted.
const MaxGateways = 256

// A Gateway is a named subscriber with a session at a node, as the node's heartbeat describes it.
type Gateway struct {
	Name      string    `json:"name"`
	Process   string    `json:"process,omitempty"`
	StartedAt time.Time `json:"started_at"` // by the gateway's clock: compared with its own only
	Since     time.Time `json:"since"`      // when the session began, by the node's clock
	// Silence is the age of the gateway's last report of its checks at the time of the heartbeat.
	Silence time.Duration `json:"silence_ns"`
	// Failing are the gateway's own checks that fail.
	Failing []string `json:"failing,omitempty"`
	// Left says that the gateway has closed its session. The node still lists it for a while, so
	// that it does not count as dead.
	Left bool `json:"left,omitempty"`
}

// A GatewayMember is a gateway as a member, and the nodes at which it has sessions.
type GatewayMember struct {
	Member

	At []string
}

// Gateways returns the gateways that the nodes' heartbeats name, by name. A gateway with sessions
// at several nodes is one member: of the process that started last, with the checks that it
// reported last. Its Beat is that of the last heartbeat that names it, and its status is
// StatusStopping if it has left. Only when whole is true is a gateway gone that is not among them:
// otherwise some node's heartbeat cannot be read or does not name all gateways.
func (v View) Gateways() (gateways []GatewayMember, whole bool) {
	type session struct {
		Gateway

		node string
		beat int64
	}
	var all []session
	whole = true
	for _, m := range v.Members {
		whole = whole && m.Garbled == nil && m.Unlisted == 0
		for _, g := range m.Gateways {
			all = append(all, session{g, m.Node, m.Beat})
		}
	}
	last := func(flag bool) int {
		if flag {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b session) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), last(a.Left)-last(b.Left), b.StartedAt.Compare(a.StartedAt), strings.Compare(a.Process, b.Process),
			cmp.Compare(a.Silence, b.Silence), strings.Compare(a.node, b.node))
	})
	for _, s := range all {
		if n := len(gateways); n > 0 && gateways[n-1].Node == s.Name {
			if g := &gateways[n-1]; g.Process == s.Process && (g.Status == StatusStopping) == s.Left {
				g.At = append(g.At, s.node)
				g.Beat = max(g.Beat, s.beat)
			}
			continue
		}
		g := GatewayMember{At: []string{s.node}, Member: Member{Beat: s.beat, Heartbeat: Heartbeat{
			Node: s.Name, Process: s.Process, Kind: KindGateway, StartedAt: s.StartedAt, Status: StatusHealthy,
		}}}
		if s.Left {
			g.Status = StatusStopping
		}
		for _, check := range s.Failing {
			if g.Checks == nil {
				g.Checks = make(map[string]bool, len(s.Failing))
			}
			g.Checks[check] = false
		}
		gateways = append(gateways, g)
	}
	return gateways, whole
}
