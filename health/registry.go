package health

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A Status is the state of a node or of a partition.
type Status string

// The states of a node; a partition has more, and counts as sick unless it is Healthy or Idle.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"
	Unhealthy Status = "unhealthy"
)

// A Severity is what a failing check means for the node.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// A Check is something that can be wrong.
type Check struct {
	Name     string
	Severity Severity
	// Text explains to an operator what the check is about.
	Text string
	// Ready says that the node cannot serve while the check fails.
	Ready bool
	// Test returns what is wrong now, or nil. It must answer at once.
	Test func() error
}

// A Partition is how one partition does.
type Partition struct {
	ID     int    `json:"id"`
	Status Status `json:"status"`
	// Lag is in seconds; absent while unknown.
	Lag *float64 `json:"lag,omitempty"`
	// HeadRoom is for how many seconds of log time the position still lives; absent while unknown.
	HeadRoom  *float64   `json:"headRoom,omitempty"`
	EventRate float64    `json:"eventRate"`
	LastEvent *time.Time `json:"lastEvent,omitempty"`
	// Error says why the partition has stopped.
	Error string `json:"error,omitempty"`
}

// A Registry holds the checks of a node.
type Registry struct {
	mu     sync.Mutex
	checks []Check
}

// Register adds a check.
func (r *Registry) Register(c Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, c)
	slices.SortFunc(r.checks, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })
}

// A Result is a check as it stands now.
type Result struct {
	Name     string   `json:"name"`
	OK       bool     `json:"ok"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	Error    string   `json:"error,omitempty"`
	// Code and Remedy are those of the error, where it has one.
	Code   fault.Code `json:"code,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
	ready  bool
}

// Results tests every check.
func (r *Registry) Results() []Result {
	r.mu.Lock()
	checks := slices.Clone(r.checks)
	r.mu.Unlock()
	results := make([]Result, len(checks))
	for i, c := range checks {
		results[i] = Result{Name: c.Name, OK: true, Severity: c.Severity, Text: c.Text, ready: c.Ready}
		if err := c.Test(); err != nil {
			results[i].OK, results[i].Error, results[i].Code = false, err.Error(), fault.Of(err)
			if entry, known := fault.Lookup(results[i].Code); known {
				results[i].Remedy = entry.Remedy
			}
		}
	}
	return results
}

// Overall is the state of a node with these checks and partitions.
func Overall(checks []Result, partitions []Partition) Status {
	status := Healthy
	for _, c := range checks {
		switch {
		case !c.OK && c.Severity == Critical:
			return Unhealthy
		case !c.OK:
			status = Degraded
		}
	}
	sick := 0
	for _, p := range partitions {
		if p.Status != Healthy && p.Status != Idle {
			sick++
		}
	}
	switch {
	case sick > 0 && 2*sick >= len(partitions):
		return Unhealthy
	case sick > 0:
		return Degraded
	}
	return status
}
