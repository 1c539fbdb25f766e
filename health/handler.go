package health

import (
	"encoding/json"
	"net/http"
	"time"
)

// A Report is what /health answers.
type Report struct {
	Status     Status      `json:"status"`
	Node       string      `json:"node"`
	Cluster    string      `json:"cluster"`
	Version    string      `json:"version"`
	Uptime     float64     `json:"uptime"` // seconds
	Partitions []Partition `json:"partitions"`
	Checks     []Result    `json:"checks"`
	// Membership is absent where the node owns all partitions.
	Membership *Membership `json:"membership,omitempty"`
}

// A Membership is a node's place among the nodes that share the partitions, as it last saw them.
type Membership struct {
	// Detached says that the node has left the cluster because its lease may have run out: it owns
	// nothing and hands out nothing.
	Detached bool `json:"detached"`
	// LeaseDeadlineLag is the deadline of the node's lease less now, in seconds: how long it lives
	// unless it is renewed. The node is detached when a third of cluster.lease_ttl is left.
	LeaseDeadlineLag float64 `json:"lease_deadline_lag"`
	// Leader is the node that makes plans, empty for nobody or while unknown; Plan is the version
	// of the plan, 0 for none.
	Leader string `json:"leader"`
	Plan   uint64 `json:"plan"`
	// Members counts the nodes by what they say of themselves.
	Members map[string]int `json:"members"`
	// Planned are how many partitions the plan gives to this node, Owned how many it owns.
	Planned int `json:"planned"`
	Owned   int `json:"owned"`
}

// A Node tells what a Report says of the node beside its checks.
type Node struct {
	Name, Cluster, Version string
	Uptime                 func() time.Duration
	Partitions             func() []Partition
	// Membership may be nil, or return nil: the node owns all partitions.
	Membership func() *Membership
	// Alive returns why the process should be replaced, nil as long as it should not. It may be
	// nil.
	Alive func() error
}

// Report makes the report of this moment.
func (r *Registry) Report(n Node) Report {
	report := Report{
		Node: n.Name, Cluster: n.Cluster, Version: n.Version, Uptime: n.Uptime().Seconds(), Partitions: n.Partitions(), Checks: r.Results(),
	}
	if n.Membership != nil {
		report.Membership = n.Membership()
	}
	report.Status = Overall(report.Checks, report.Partitions)
	return report
}

// Handle puts /health, /livez and /readyz on a mux.
//
// /health answers 200 while the node is healthy or degraded and 503 while it is unhealthy. /readyz
// answers 503 while a check that serving depends on fails. /livez answers 503 when [Node.Alive]
// says so: never because MongoDB or etcd is away.
func (r *Registry) Handle(mux *http.ServeMux, n Node) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		report := r.Report(n)
		answer(w, report.Status != Unhealthy, report)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		failing := []Result{}
		for _, c := range r.Results() {
			if c.ready && !c.OK {
				failing = append(failing, c)
			}
		}
		answer(w, len(failing) == 0, struct {
			Ready   bool     `json:"ready"`
			Failing []Result `json:"failing"`
		}{len(failing) == 0, failing})
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		var said struct {
			Alive bool   `json:"alive"`
			Error string `json:"error,omitempty"`
		}
		said.Alive = true
		if n.Alive != nil {
			if err := n.Alive(); err != nil {
				said.Alive, said.Error = false, err.Error()
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
