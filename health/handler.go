package health

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// A Report is what /health answers.
type Report struct {
	Status     Status      `json:"status"`
	Node       string      `json:"node"`
	Cluster    string      `json:"cluster"`
	Version    string      `json:"version"`
	Uptime     float64     `json:"uptime_seconds"`
	Partitions []Partition `json:"partitions"`
	// Problems are those of the verdict, the most urgent first.
	Problems []Problem `json:"problems"`
	// Stages are how long changes took in each stage of their way, on average, in seconds: the
	// newest sample. Those that no change passed are absent.
	Stages map[string]float64 `json:"stage_seconds,omitempty"`
	// Membership is absent where the node owns all partitions.
	Membership *Membership `json:"membership,omitempty"`
}

// A Membership is a node's place among the nodes that share the partitions, as it last saw them.
type Membership struct {
	// Detached says that the node has left the cluster because its lease may have expired: it owns
	// no partitions and delivers none.
	Detached bool `json:"detached"`
	// LeaseDeadlineLag is the deadline of the node's lease less now, in seconds: how long it lives
	// unless it is renewed. The node is detached when a third of cluster.lease_ttl is left.
	LeaseDeadlineLag float64 `json:"lease_deadline_lag_seconds"`
	// Leader is the node that makes plans, empty for none or while unknown; Plan is the version of
	// the plan, 0 for none.
	Leader string `json:"leader"`
	Plan   uint64 `json:"plan"`
	// Members counts the nodes by the status that they report.
	Members map[string]int `json:"members"`
	// Planned are how many partitions the plan gives to this node, Owned how many it owns.
	Planned int `json:"planned"`
	Owned   int `json:"owned"`
}

// A Partition is how one partition does.
type Partition struct {
	ID     int    `json:"id"`
	Status Status `json:"status"`
	// LastKnown is absent while what the partition says is current: while MongoDB can be read.
	LastKnown *LastKnown `json:"last_known,omitempty"`
	// Lag is absent while unknown.
	Lag *float64 `json:"lag_seconds,omitempty"`
	// HeadRoom is the log time until the position leaves the oplog; absent while unknown, and while
	// nothing leaves it.
	HeadRoom    *float64   `json:"head_room_seconds,omitempty"`
	Rate        float64    `json:"rate"` // events a second
	LastEventAt *time.Time `json:"last_event_at,omitempty"`
	// Error says why the partition has stopped.
	Error string `json:"error,omitempty"`
}

// LastKnown is what was last known of a partition, and when.
type LastKnown struct {
	At     time.Time `json:"at"`
	Status Status    `json:"status"`
	Lag    *float64  `json:"lag_seconds,omitempty"`
}

// A Node has the parts of a Report other than problems.
type Node struct {
	Name, Cluster, Version string
	Uptime                 func() time.Duration
	Partitions             func() []Partition
	// Judge returns the verdict of this moment.
	Judge func() Verdict
	// Membership may be nil, or return nil: the node owns all partitions.
	Membership func() *Membership
	// Stages may be nil.
	Stages func() map[string]float64
	// Alive returns why the process should be replaced, nil as long as it should not. It may be
	// nil.
	Alive func() error
}

// Report makes the report of this moment.
func (n Node) Report() Report {
	v := n.Judge()
	report := Report{
		Status: v.Status, Node: n.Name, Cluster: n.Cluster, Version: n.Version, Uptime: n.Uptime().Seconds(), Partitions: n.Partitions(), Problems: v.Problems,
	}
	if n.Membership != nil {
		report.Membership = n.Membership()
	}
	if n.Stages != nil {
		report.Stages = n.Stages()
	}
	return report
}

// A Readiness is what /readyz answers.
type Readiness struct {
	Ready bool `json:"ready"`
	// Problems are those that affect the node, where it is not ready.
	Problems []Problem `json:"problems"`
}

// Handle puts /health, /livez and /readyz on a mux.
//
// /health answers 200 while the node is healthy or degraded and 503 while it is unhealthy. /readyz
// answers 503 while a problem keeps the node from serving. /livez answers 503 when [Node.Alive]
// says so: never because MongoDB or etcd is unreachable. They need no authentication, so they never
// contain errors of dependencies.
func (n Node) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		report := n.Report()
		report.Problems = Verdict{Problems: report.Problems}.Public().Problems
		answer(w, report.Status != Unhealthy, report)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		v := n.Judge().Public()
		said := Readiness{Ready: v.Ready, Problems: []Problem{}}
		if !v.Ready {
			said.Problems = slices.DeleteFunc(v.Problems, func(p Problem) bool { return !slices.Contains(p.Affects.Nodes, n.Name) })
		}
		answer(w, said.Ready, said)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		var said struct {
			Alive bool   `json:"alive"`
			Error string `json:"error,omitempty"`
		}
		said.Alive = true
		if n.Alive != nil {
			if err := n.Alive(); err != nil {
				said.Alive = false
				said.Error = err.Error()
			}
		}
		answer(w, said.Alive, said)
	})
}

func answer(w http.ResponseWriter, ok bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}
