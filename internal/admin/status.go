package admin

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/health"
)

// A Status is a node's health and its cluster as the node last saw it, in a form that is small for
// thousands of partitions.
type Status struct {
	Cluster string        `json:"cluster"`
	Node    string        `json:"node"` // the node that answers
	Version string        `json:"version"`
	Status  health.Status `json:"status"`
	Uptime  float64       `json:"uptime_seconds"`
	// Detached says that the node has left the cluster because its lease may have run out.
	Detached bool `json:"detached"`
	// Leader is the node that makes plans, empty for none or while unknown.
	Leader string     `json:"leader"`
	Plan   StatusPlan `json:"plan"`
	// HeadRoomWarning and HeadRoomCritical are the configured thresholds of head-room in seconds;
	// in a short oplog a half and a quarter of its length count instead.
	HeadRoomWarning  float64 `json:"head_room_warning_seconds"`
	HeadRoomCritical float64 `json:"head_room_critical_seconds"`
	// Problems are those of the cluster as the node that answers sees it, the most urgent first.
	Problems []health.Problem `json:"problems"`
	Expected int              `json:"expected_nodes"` // as the node that answers is configured
	// ViewAge is the age of the answering node's data about the other nodes, in seconds.
	ViewAge float64      `json:"view_age_seconds"`
	Nodes   []StatusNode `json:"nodes"`
	// Absent are nodes that the plan names and that are not there.
	Absent     []string         `json:"absent"`
	Partitions StatusPartitions `json:"partitions"`
	// MayOperate says that the requester may drain nodes, move partitions and pause restarts here.
	MayOperate bool `json:"may_operate"`
}

// A StatusPlan is the plan without its partitions. Version 0 is no plan.
type StatusPlan struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Cause   string    `json:"cause"`
}

// A StatusNode is a node by its last heartbeat.
type StatusNode struct {
	Node      string         `json:"node"`
	Process   string         `json:"process"`
	Status    cluster.Status `json:"status"`
	Problems  []string       `json:"problems"` // their subjects
	Version   string         `json:"version"`
	Address   string         `json:"address"` // for gateways, empty for none
	StartedAt time.Time      `json:"started_at"`
	Rate      float64        `json:"rate"`        // events a second
	Lag       *float64       `json:"lag_seconds"` // of the partition furthest behind; nil while unknown
	Queued    int64          `json:"queued_bytes"`
	Planned   int            `json:"planned"` // partitions that the plan gives to it
	Owned     int            `json:"owned"`
	Drained   bool           `json:"drained"`          // by an operator: it gets no partitions
	Unread    string         `json:"unread,omitempty"` // why the heartbeat cannot be read
	// Gateways are those with a session at the node, and Unlisted how many more there are.
	Gateways []string `json:"gateways"`
	Unlisted int      `json:"gateways_unlisted"`
}

// StatusPartitions are the partitions in columns, each by partition.
type StatusPartitions struct {
	Owners  []int `json:"owners"`  // indexes into Nodes, -1 for nobody
	Planned []int `json:"planned"` // likewise
	Why     []int `json:"why"`     // indexes into Reasons, -1 where the plan does not say
	// States are indexes into StateNames, -1 where the owner says nothing yet; Rates are events a
	// second.
	States []int     `json:"states"`
	Rates  []float64 `json:"rates"`
	// Lags and HeadRooms are in seconds, nil while unknown and for partitions of other nodes.
	Lags      []*float64 `json:"lag_seconds"`
	HeadRooms []*float64 `json:"head_room_seconds"`
	// LastKnown is absent while MongoDB can be read: otherwise when it last could, and LastLags are
	// the lags of then, of the partitions of the node that answers.
	LastKnown *time.Time `json:"last_known_at,omitempty"`
	LastLags  []*float64 `json:"last_lag_seconds,omitempty"`
	// Errors say why partitions of the node that answers have stopped.
	Errors     map[int]string  `json:"errors"`
	StateNames []health.Status `json:"state_names"`
	Reasons    []string        `json:"reasons"`
}

// NewStatus returns the public form of a node's health and of its view of the cluster.
func NewStatus(report health.Report, view cluster.View) *Status {
	s := &Status{
		Cluster: report.Cluster, Node: report.Node, Version: report.Version, Status: report.Status, Uptime: report.Uptime,
		Detached: report.Membership != nil && report.Membership.Detached, Leader: view.Leader, Problems: report.Problems,
		Plan:  StatusPlan{Version: view.Plan.Version, At: view.Plan.At, By: view.Plan.By, Cause: view.Plan.Cause},
		Nodes: []StatusNode{}, Absent: []string{},
	}
	of, by := map[string]int{}, map[string]int{} // indexes into Nodes by process and by name
	for _, m := range view.Members {
		n := StatusNode{
			Node: m.Node, Process: m.Process, Status: m.Condition(), Problems: []string{}, Version: m.Version, Address: m.Gateway, StartedAt: m.StartedAt,
			Rate: rounded(m.Load.Rate, 10), Lag: m.Load.Lag, Queued: m.Load.Queued, Gateways: []string{}, Unlisted: m.Unlisted,
		}
		if m.Garbled != nil {
			n.Unread = m.Garbled.Error()
		}
		_, n.Drained = view.Directives.Drained[m.Node]
		for _, p := range m.Problems {
			if !p.OfNodes() { // it is not the node's own
				n.Problems = append(n.Problems, p.Subject)
			}
		}
		for _, g := range m.Gateways {
			if !g.Left {
				n.Gateways = append(n.Gateways, g.Name)
			}
		}
		of[m.Process], by[m.Node] = len(s.Nodes), len(s.Nodes)
		s.Nodes = append(s.Nodes, n)
	}
	s.Partitions = newStatusPartitions(view, of, by)
	for p := range view.Owners {
		if i := s.Partitions.Owners[p]; i >= 0 {
			s.Nodes[i].Owned++
		}
		switch node := view.Plan.Owner(change.Partition(p)); {
		case s.Partitions.Planned[p] >= 0:
			s.Nodes[s.Partitions.Planned[p]].Planned++
		case node != "" && !slices.Contains(s.Absent, node):
			s.Absent = append(s.Absent, node)
		}
	}
	slices.Sort(s.Absent)
	for _, p := range report.Partitions {
		if p.ID >= len(view.Owners) {
			continue
		}
		s.Partitions.own(p)
		if p.Error != "" {
			s.Partitions.Errors[p.ID] = p.Error
		}
	}
	return s
}

// newStatusPartitions returns the columns, without the answering node's own data about its
// partitions.
func newStatusPartitions(view cluster.View, of, by map[string]int) StatusPartitions {
	n := len(view.Owners)
	c := StatusPartitions{
		Owners: make([]int, n), Planned: make([]int, n), Why: make([]int, n), States: make([]int, n), Rates: make([]float64, n),
		Lags: make([]*float64, n), HeadRooms: make([]*float64, n), Errors: map[int]string{}, StateNames: []health.Status{},
		Reasons: append([]string{}, view.Plan.Reasons...),
	}
	at := func(indexes map[string]int, key string) int {
		if i, there := indexes[key]; there && key != "" {
			return i
		}
		return -1
	}
	for i, owner := range view.Owners {
		p := change.Partition(i)
		c.Owners[i] = at(of, owner.Process)
		c.Planned[i] = at(by, view.Plan.Owner(p))
		c.Why[i] = -1
		c.States[i] = -1
		if view.Plan.Reason(p) != "" {
			c.Why[i] = int(view.Plan.Why[i])
		}
	}
	for _, m := range view.Members {
		for _, h := range m.Held {
			if int(h.Partition) >= n || h.Epoch != view.Owners[h.Partition].Epoch {
				continue // it has not heard yet that another owns it
			}
			c.States[h.Partition] = c.state(health.Status(h.State))
			c.Rates[h.Partition] = rounded(h.Rate, 10)
		}
	}
	return c
}

// state returns the index of a state.
func (c *StatusPartitions) state(name health.Status) int {
	if i := slices.Index(c.StateNames, name); i >= 0 {
		return i
	}
	c.StateNames = append(c.StateNames, name)
	return len(c.StateNames) - 1
}

// own puts what the answering node knows of a partition of its own in the place of what its last
// heartbeat said.
func (c *StatusPartitions) own(p health.Partition) {
	c.Lags[p.ID], c.HeadRooms[p.ID] = p.Lag, p.HeadRoom
	if c.States[p.ID] >= 0 {
		c.States[p.ID] = c.state(p.Status)
	}
	if last := p.LastKnown; last != nil {
		if c.LastLags == nil {
			c.LastKnown = &last.At
			c.LastLags = make([]*float64, len(c.States))
		}
		c.LastLags[p.ID] = last.Lag
	}
}

// rounded returns n to a part of one, for it to be short.
func rounded(n, parts float64) float64 { return math.Round(n*parts) / parts }

// ServeStatus answers GET requests with a Status as JSON: 200, and 403 to identities that may not
// read everything. may says whether an identity may operate.
func ServeStatus(status func() *Status, may func(*access.Identity) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.From(r.Context())
		if !i.Operates() {
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "the cluster's status needs the right to every namespace"))
			return
		}
		s := status()
		s.MayOperate = may(i)
		answer(w, http.StatusOK, s)
	})
}
